// Questions that commit. The output that a question asks about, the next one before the next heading, stays folded until the
// reader has answered or wants to be shown, and with it the paragraph that explains it. The first answer counts; it stays
// marked, with its reason, after a reload.
addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("article");
  if (!article) return;
  const make = (tag, options, ...parts) => {
    const element = Object.assign(document.createElement(tag), options);
    element.append(...parts);
    return element;
  };
  const idOf = ask => ask.getAttribute("aria-labelledby");
  const replies = ask => [...ask.querySelectorAll(":scope > details")];
  const isRight = reply => reply.querySelector("strong")?.textContent === "Yes.";

  // What is asked about: of the cells behind the question in its section, the first with an output that asks nothing.
  const revealing = ask => {
    const cell = ask.closest(".cell");
    for (let next = cell?.nextElementSibling; next && !next.matches("section, h1, h2, h3, h4, h5"); next = next.nextElementSibling) {
      const output = next.matches(".cell") && next.querySelector(":scope > .cell_output");
      if (output && !output.querySelector(".d2l-ask")) return output;
    }
    return undefined;
  };
  // What explains an output: the first paragraph or list behind its cell, with a drawing before it, and what a
  // colon announces or a formula goes on with. The text after that teaches, and is read without an answer too.
  const explanation = output => {
    const found = [], colon = part => part?.textContent.trim().endsWith(":");
    const goesOn = (part, next) => colon(part) || [part, next].some(block => block.matches(".math"));
    let next = output.closest(".cell").nextElementSibling;
    for (; next && !next.matches("section, h1, h2, h3, h4, h5, details, .exercise"); next = next.nextElementSibling) {
      if (next.matches(".cell") && next.querySelector(".cell_input, .d2l-ask")) break;
      if (found.some(part => part.matches("p, ul, ol")) && !goesOn(found.at(-1), next)) break;
      found.push(next);
    }
    if (next?.matches(".cell") && colon(found.at(-1))) found.pop(); // it introduces that cell
    return found;
  };
  const gates = new Map(), about = new Map(); // output -> the line in its place, and the questions about it
  const reveal = output => about.get(output)?.filter(ask => !ask.dataset.answered)
    .forEach(ask => bookProgress.set(idOf(ask), { shown: true }));
  const gate = (output, asks) => {
    const open = asks.every(ask => ask.dataset.answered);
    output.toggleAttribute("data-gated", !open);
    explanation(output).forEach(part => part.toggleAttribute("data-explains-gated", !open));
    let line = gates.get(output);
    if (open) return line?.remove();
    if (!line) {
      const button = make("button", { type: "button", className: "book-button", textContent: "Show me" });
      button.onclick = () => {
        reveal(output);
        output.tabIndex = -1;
        output.focus({ preventScroll: true });
      };
      line = make("p", { className: "gate" }, "The output stays folded until you have answered the question above. ", button);
      gates.set(output, line);
    }
    if (!line.isConnected) output.before(line);
    return undefined;
  };

  const mark = ask => {
    const known = bookProgress.get(idOf(ask)), value = known ?? {}, predicts = ask.matches(".d2l-predict");
    const chosen = predicts ? undefined : replies(ask)[value.choice];
    const right = predicts ? value.guess !== undefined && judge(ask, value.guess).right : chosen && isRight(chosen);
    const answered = value.shown ? "shown" : chosen || value.guess !== undefined ? (right ? "right" : "wrong") : undefined;
    if (answered) ask.dataset.answered = answered;
    else delete ask.dataset.answered;
    replies(ask).forEach(reply => {
      reply.toggleAttribute("data-chosen", reply === chosen);
      if (reply === chosen) reply.dataset.verdict = right ? "right" : "wrong";
      else delete reply.dataset.verdict;
    });
    return { value, chosen };
  };

  // A guess is a number, in the question's unit if it has one. It is right within a factor.
  const judge = (ask, text) => {
    const { answer, unit, within } = ask.dataset, plain = text.trim().replace(/(?<=\d)[,\u00a0 ](?=\d{3})/g, "");
    const [, number, rest] = plain.match(/^([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(.*)$/i) ?? [];
    if (!number || (rest && rest !== unit)) return { wrong: `Write a number${unit ? ` in ${unit}` : ""}, such as 12 or 0.5.` };
    const ratio = Number(number) / Number(answer), off = ratio > 1 ? ratio : 1 / ratio;
    const right = ratio > 0 && off <= Number(within) * (1 + 1e-9);
    const far = off < 10 ? off.toPrecision(2) : Math.round(off).toLocaleString("en");
    if (right) return { right, text: `✓ Right: within a factor of ${within}.` };
    return { right, text: ratio > 0 ? `✗ Your guess is ${far} times too ${ratio > 1 ? "large" : "small"}.` : "✗ The number is above zero." };
  };
  const askForNumber = ask => {
    const details = replies(ask)[0], { unit, within } = ask.dataset;
    const input = make("input", { type: "text", inputMode: "decimal", autocomplete: "off", size: 8 });
    const submit = make("button", { type: "submit", className: "book-button", textContent: "Check" });
    const verdict = make("output", {});
    const label = make("label", {}, "Your guess ", input, unit ? ` ${unit}` : "");
    const form = make("form", { noValidate: true }, label, " ", submit, ` (right within a factor of ${within}) `, verdict);
    form.onsubmit = event => {
      event.preventDefault();
      const found = judge(ask, input.value);
      if (found.wrong) verdict.textContent = found.wrong;
      else bookProgress.set(idOf(ask), { guess: input.value.trim() });
    };
    details.before(form);
    return value => {
      input.readOnly = value.guess !== undefined;
      submit.hidden = input.readOnly;
      if (!input.readOnly) return;
      input.value = value.guess;
      verdict.textContent = judge(ask, value.guess).text;
    };
  };

  const known = new Map(); // question -> what shows a guess in it
  const update = () => {
    about.clear();
    article.querySelectorAll(".d2l-ask").forEach(ask => {
      const fresh = !known.has(ask);
      if (fresh) known.set(ask, ask.matches(".d2l-predict") ? askForNumber(ask) : () => {});
      const before = ask.dataset.answered, { value, chosen } = mark(ask);
      known.get(ask)(value);
      const reply = value.guess !== undefined ? replies(ask)[0] : chosen;
      if (reply && before !== ask.dataset.answered && (fresh || !chosen)) reply.open = true; // a click opens by itself
      const output = revealing(ask);
      if (output) about.set(output, [...(about.get(output) ?? []), ask]);
    });
    about.forEach((asks, output) => gate(output, asks));
  };

  // A click, by mouse or keyboard, on an answer that is folded chooses it.
  article.addEventListener("click", event => {
    const reply = event.target.closest(".d2l-ask > details > summary")?.parentElement, ask = reply?.parentElement;
    if (!ask || reply.open || ["right", "wrong"].includes(ask.dataset.answered)) return;
    if (!ask.matches(".d2l-predict")) bookProgress.set(idOf(ask), { choice: replies(ask).indexOf(reply) });
    else if (!ask.dataset.answered) bookProgress.set(idOf(ask), { shown: true });
  });
  // Who runs a cell wants to see what it gives; to run all cells of a page asks for nothing in particular.
  const ran = ({ target }) => reveal(target.closest(".cell")?.querySelector(":scope > [data-gated]"));
  article.addEventListener("click", event => event.target.closest('[data-action="run"]') && ran(event));
  article.addEventListener("keydown", event => event.target.closest("[data-editor]") && event.key === "Enter" && event.shiftKey && ran(event), true);
  addEventListener("book:progress", update);
  addEventListener("storage", update);
  document.addEventListener("live:done", update); // a run has put new questions in the place of old ones
  update();
});
