// Paper is white: a page that is dark on the screen is printed as in the light.
(() => {
  const page = document.documentElement;
  let theme;
  addEventListener("beforeprint", () => {
    theme ??= page.dataset.theme;
    page.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    page.dataset.theme = theme;
    theme = undefined;
  });
})();
