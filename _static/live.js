// Lets the reader edit and run the cells of a page that `make serve` shows. tools/serve.py has the kernels and marks the
// page as served, tools/live_cells.py puts the code of all cells into it. On any other host this does nothing.
//
// From top to bottom: what a cell is; the kernel; the queue of cells; their outputs; the editor; the page's own buttons.
// When a cell has finished, `live:done` is dispatched at the document: {cell: its element, ok, text: what it printed}.
addEventListener("DOMContentLoaded", () => {
  const data = document.getElementById("live-cells");
  if (!("served" in document.body.dataset)) return;
  if (new URLSearchParams(location.search).has("token")) history.replaceState(null, "", location.pathname + location.hash);
  if (!data) return; // from here on a cookie stands for the token, which nobody need see

  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const button = (action, text, label, press) => {
    const made = make("button", { type: "button", "data-action": action, "aria-label": label }, text);
    made.addEventListener("click", press);
    return made;
  };

  // --- a cell ---
  // From the page's data: source; shown: whether it is on the page; alone: an exercise, which needs no other cell; fails:
  // its error is meant; needs: {name: number of the cell that gives it}. A cell that the page leaves out belongs to the
  // one above it, its `owner`: it runs once that one has run and a later cell is run.
  const { path, cells } = JSON.parse(data.textContent);
  const elements = document.querySelectorAll("article .cell"), copies = {};
  const shown = cells.filter(cell => cell.shown);
  let owner = null;
  shown.forEach((cell, i) => { cell.element = elements[i]; cell.title = `cell ${i + 1}`; });
  for (const cell of cells) {
    if (!cell.shown) cell.owner = owner;
    else if (!cell.alone) owner = cell;
    copies[cell.source] = (copies[cell.source] ?? 0) + 1;
    cell.key = `${copies[cell.source]}: ${cell.source}`; // an edit is kept under what was edited
  }
  const above = cell => cells.slice(0, cells.indexOf(cell));
  const code = cell => cell.editor ? written(cell.editor) : cell.source;

  const ran = new Set(); // the cells whose results this kernel holds
  const has = cell => ran.has(cell) || !cell.shown && (!cell.owner || ran.has(cell.owner));
  const missing = cell => Object.keys(cell.needs).filter(name => !has(cells[cell.needs[name]]));

  const setState = (cell, state, text = "") => {
    cell.element.dataset.state = state;
    if (!cell.status) return;
    const names = state === "idle" ? missing(cell) : [];
    cell.status.textContent = names.length ? `needs ${names.join(", ")} from cells above` : text;
  };
  const refresh = () => shown.forEach(cell => cell.element.dataset.state === "idle" && setState(cell, "idle"));

  // --- the kernel: one for this page, started when it is first wanted; the server ends it with the page ---
  // The protocol: https://jupyter-client.readthedocs.io/en/stable/messaging.html, one JSON message a WebSocket frame.
  const session = crypto.randomUUID(), requests = new Map();
  let id, socket, connection; // connection: resolved when the kernel can be asked; none where there is no kernel

  const api = async (address, method) => {
    const xsrf = document.cookie.match(/(?:^|; )_xsrf=([^;]*)/)?.[1] ?? "";
    const body = address === "" && method === "POST" ? JSON.stringify({ name: "python3", path }) : undefined;
    const answer = await fetch(`/api/kernels${address}`, { method, body, headers: { "X-XSRFToken": xsrf } })
      .catch(() => { throw new Error("the server has stopped; make serve starts it again"); });
    if (!answer.ok) throw new Error(`the server refused: ${answer.status} ${answer.statusText}`);
    return answer.json();
  };

  const open = () => new Promise((done, fail) => {
    const old = socket, mine = new WebSocket(`ws://${location.host}/api/kernels/${id}/channels?session_id=${session}`);
    socket = mine;
    old?.close();
    mine.onopen = () => { setKernel("idle"); done(); };
    mine.onerror = () => fail(new Error("the server does not answer"));
    mine.onmessage = message => typeof message.data === "string" && receive(JSON.parse(message.data));
    mine.onclose = () => { if (mine === socket) reach(recover); };
  });
  const reach = how => {
    const mine = connection = how();
    mine.catch(error => { if (mine === connection) lose(error.message, "none"); });
    return mine;
  };
  const connect = () => connection ?? reach(async () => {
    setKernel("starting");
    ({ id } = await api("", "POST"));
    await open();
    execute("import d2lmini.checks", () => {}, true).catch(() => {}); // takes a second that the first cell need not wait
  });
  const ENDED = "the kernel has ended; the next run starts another";
  const ask = async () => { // the server ends a kernel that is idle for long, and tells nobody
    const kernels = await api("", "GET");
    if (!kernels.some(kernel => kernel.id === id)) throw new Error(ENDED);
  };
  const recover = async () => {
    setKernel("connecting");
    await ask();
    await open(); // it was the connection alone that broke
  };
  const restart = () => connection ? reach(async () => {
    forget("the kernel was restarted");
    setKernel("restarting");
    await api(`/${id}/restart`, "POST");
    await open();
  }) : connect();
  const interrupt = () => {
    empty();
    if (running && socket?.readyState === WebSocket.OPEN) api(`/${id}/interrupt`, "POST").catch(error => say(error.message));
    else stopped = running;
  };

  // What the kernel held is gone: what waits for it fails, and cells have to run again. What was written stays.
  const forget = reason => {
    empty();
    ran.clear();
    requests.forEach(request => request.fail(new Error(reason)));
    requests.clear();
    refresh();
    say(reason);
  };
  const lose = (reason, state) => {
    socket?.close();
    connection = socket = undefined;
    forget(reason);
    setKernel(state, reason);
  };

  const receive = ({ msg_type: type, parent_header: parent, content }) => {
    const dead = type === "status" && content.execution_state === "dead";
    if (dead || type === "shutdown_reply" && !content.restart) return lose(ENDED, "none");
    if (type === "status" && content.execution_state.endsWith("restarting")) {
      forget("the kernel died and was started again; cells have to run again");
      reach(open);
      return;
    }
    const request = requests.get(parent?.msg_id);
    if (!request) return;
    if (type === "execute_reply") request.reply = content;
    else if (type === "status") request.idle = content.execution_state === "idle";
    else request.show(type, content);
    if (!request.reply || !request.idle) return;
    requests.delete(parent.msg_id);
    request.done(request.reply);
  };

  const execute = async (source, show, silent = false) => {
    if (!silent) await connect();
    const header = { msg_id: crypto.randomUUID(), msg_type: "execute_request", version: "5.3", username: "", session };
    const content = { code: source, silent, store_history: !silent, user_expressions: {}, allow_stdin: false, stop_on_error: false };
    return new Promise((done, fail) => {
      requests.set(header.msg_id, { show, done, fail });
      socket.send(JSON.stringify({ channel: "shell", header, parent_header: {}, metadata: {}, content, buffers: [] }));
    });
  };

  // --- the queue ---
  const queue = [];
  let running, stopped; // stopped: the cell that was interrupted before there was a kernel

  const empty = () => queue.splice(0).forEach(cell => setState(cell, "idle"));
  const enqueue = async list => {
    for (const cell of list.filter(cell => cell !== running && !queue.includes(cell))) {
      queue.push(cell);
      setState(cell, "queued", "queued");
    }
    if (running) return;
    while ((running = queue.shift())) {
      const done = await run(running);
      if (!done && !running.alone) empty(); // the cells below would fail as well
    }
    refresh();
    if (state.dataset.kernel === "busy") setKernel("idle");
  };
  const runAbove = cell => enqueue(above(cell).filter(cell => cell.shown && !cell.alone));
  const runMissing = cell => enqueue([...above(cell).filter(cell => cell.shown && !cell.alone && !ran.has(cell)), cell]);

  const run = async cell => {
    const start = performance.now(), seconds = digits => ((performance.now() - start) / 1000).toFixed(digits);
    const tell = () => setState(cell, "running", `running, ${seconds(0)} s`);
    const output = new Output(cell.element), lacking = missing(cell), ticking = setInterval(tell, 1000);
    let ok = false;
    tell();
    setKernel(connection ? "busy" : "starting");
    if (cell.editor) keep(cell);
    try {
      if (connection) await connection.then(ask).catch(error => lose(error.message, "none"));
      await connect();
      if (cell === stopped) throw new Error("interrupted before the kernel was ready");
      for (const hidden of above(cell).filter(other => !other.shown && !ran.has(other) && has(other))) {
        const { ename } = await execute(hidden.source, () => {}); // what it asserts need not hold on this machine
        if (ename === "KeyboardInterrupt") throw new Error("interrupted in what the page leaves out above");
        ran.add(hidden);
      }
      setKernel("busy");
      cells.filter(other => other.owner === cell).forEach(other => ran.delete(other));
      const reply = await execute(code(cell), (type, content) => output.take(type, content));
      ok = reply.status === "ok" || cell.fails;
      for (const { source, data } of reply.payload ?? []) if (source === "page") output.take("display_data", { data }); // print?
      if (ok) ran.add(cell);
      output.finish();
    } catch (error) {
      output.say(error.message);
    }
    clearInterval(ticking);
    stopped = undefined;
    if (!ok && lacking.length) output.offer(lacking, () => runMissing(cell));
    setState(cell, ok ? "ok" : "error", `${ok ? "done in" : "failed after"} ${seconds(1)} s`);
    say(`${cell.title} ${ok ? "done" : "failed"}: ${output.text.slice(0, 300)}`);
    document.dispatchEvent(new CustomEvent("live:done", { detail: { cell: cell.element, ok, text: output.text } }));
    return ok;
  };

  // --- outputs, in the same elements as the stored ones ---
  const LONGEST = 200_000; // characters of a stream: the last ones are shown
  const CUT = "… what came before this is left out: only the last 200,000 characters are shown\n";
  const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
  const displays = new Map(); // what may be updated: display_id -> its element

  // A carriage return goes back to the line's beginning, and what follows is written over what was there.
  const overwritten = text => text.split("\n").map(line =>
    line.split("\r").reduce((before, part) => part + before.slice(part.length))).join("\n");

  // Sixteen colours, as IPython's errors have; other escape sequences are left out.
  const coloured = text => {
    let bold = "", colour = "", ground = "";
    return text.replace(/\x1b\[[\d;?]*[A-Za-ln-z]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)/g, "").split(/\x1b\[([\d;]*)m/).map((part, i) => {
      const classes = [bold, colour, ground].filter(Boolean).join(" ");
      if (i % 2 === 0) return classes && part ? make("span", { class: classes }, part) : part;
      for (const number of (part.replace(/[34]8;(5;\d+|2(;\d+){3})/g, "") || "0").split(";").map(Number)) {
        if (number === 0) bold = colour = ground = "";
        else if (number === 1 || number === 22) bold = number === 1 ? "ansi-bold" : "";
        else if (number === 39 || number === 49) number === 39 ? colour = "" : ground = "";
        else if (number % 60 >= 30 && number % 60 < 38 && number < 98) colour = `ansi-${COLOURS[number % 10]}`;
        else if ((number >= 40 && number < 48) || number >= 100 && number < 108) ground = `ansi-on-${COLOURS[number % 10]}`;
      }
      return "";
    });
  };

  class Output {
    constructor(cell) {
      this.place = cell.querySelector(".cell_output") ?? make("div", { class: "cell_output docutils container" });
      if (!this.place.isConnected) cell.append(this.place);
      this.fixed = Boolean(this.place.querySelector(".d2l-ask")); // a question keeps the reader's answer
      this.stale = true; // what is there goes when something comes
    }
    get text() {
      return this.place.innerText.trim();
    }
    add(kind) {
      this.paint();
      if (this.stale) this.place.replaceChildren();
      this.stale = false;
      this.stream = undefined;
      const box = make("div", { class: `output ${kind}` });
      this.place.append(box);
      return box;
    }
    addText(kind, text) {
      const pre = make("pre", {}, ...coloured(text));
      this.add(`${kind} notranslate`).append(make("div", { class: "highlight" }, pre));
      return pre;
    }
    say(reason) {
      this.paint();
      this.stale = false;
      this.addText("live-lost", reason);
    }
    offer(names, press) {
      const text = `It needs ${names.join(", ")} from cells above, which have not run. `;
      const box = this.add("live-offer");
      box.append(text, button("run-missing", "Run them, then this cell", "Run cells above, then this one", press));
      this.place.prepend(box); // above the error's many lines
    }
    take(type, content) {
      if (this.fixed) return;
      if (type === "stream") this.write(content);
      else if (type === "display_data" || type === "execute_result") {
        const box = this.add("");
        displays.set(content.transient?.display_id, box);
        this.fill(box, content);
      } else if (type === "update_display_data") {
        const box = displays.get(content.transient?.display_id);
        if (box) this.fill(box, content);
      } else if (type === "error") this.addText("traceback", content.traceback.join("\n"));
      else if (type === "clear_output") {
        this.stale = true;
        if (!content.wait) this.finish();
      }
    }
    write({ name, text }) {
      if (this.stale || this.stream?.name !== name) {
        const pre = this.addText(name === "stderr" ? "stderr" : "stream", "");
        this.stream = { name, pre, text: "" };
      }
      const whole = this.stream.text + text;
      this.stream.cut ||= whole.length > LONGEST;
      this.stream.text = whole.slice(-LONGEST);
      this.painting ??= setTimeout(() => this.paint(), 40);
    }
    paint() {
      clearTimeout(this.painting);
      this.painting = undefined;
      if (this.stream) this.stream.pre.replaceChildren(this.stream.cut ? CUT : "", ...coloured(overwritten(this.stream.text)));
    }
    fill(box, { data, metadata }) {
      const kinds = ["text/html", "image/svg+xml", "image/png", "image/jpeg", "image/gif", "text/latex", "text/markdown", "text/plain"];
      const kind = kinds.find(name => name in data) ?? "text/plain", text = data[kind] ?? "";
      box.className = `output ${kind.replace(/\W/g, "_")}`;
      box.replaceChildren();
      if (kind === "text/html") {
        box.innerHTML = text;
        for (const script of box.querySelectorAll("script")) { // a browser does not run those of innerHTML
          const copy = make("script", Object.fromEntries([...script.attributes].map(a => [a.name, a.value])), script.textContent);
          copy.async = false;
          script.replaceWith(copy);
        }
      } else if (kind.startsWith("image/")) {
        const svg = kind === "image/svg+xml", image = make("img", { alt: data["text/plain"] ?? "picture" });
        image.src = svg ? `data:${kind},${encodeURIComponent(text)}` : `data:${kind};base64,${text}`;
        if (metadata?.[kind]?.width) image.width = metadata[kind].width;
        box.append(image);
      } else if (kind === "text/latex") {
        box.classList.add("math");
        box.append(text.trim().replace(/^\$([^$]+)\$$/, "\\($1\\)")); // MathJax reads no single dollars here
        window.MathJax?.typesetPromise?.([box]);
      } else box.append(make("div", { class: "highlight" }, make("pre", {}, ...coloured(text))));
    }
    finish() {
      this.paint();
      if (this.stale && !this.fixed) this.place.replaceChildren();
      this.stream = undefined;
    }
  }

  // --- the editor: the page's own code, which can be written into ---
  const store = `live: ${path}`;
  const edits = () => {
    try {
      return JSON.parse(localStorage.getItem(store)) ?? {};
    } catch {
      return {};
    }
  };
  const plain = editor => {
    let text = "";
    const walk = node => {
      if (node.nodeName === "BR" || node.nodeName === "DIV" && text && !text.endsWith("\n")) text += "\n";
      node.nodeType === Node.TEXT_NODE ? text += node.data : node.childNodes.forEach(walk);
    };
    walk(editor);
    return text.replaceAll("\u00a0", " ");
  };
  const written = editor => plain(editor).replace(/\n$/, "");
  const keep = cell => {
    const all = edits(), text = code(cell);
    if (text === cell.source) delete all[cell.key];
    else all[cell.key] = text;
    cell.element.classList.toggle("edited", text !== cell.source);
    try {
      localStorage.setItem(store, JSON.stringify(all));
    } catch {
      say("the browser keeps no edits: they are lost when the page is closed");
    }
  };

  let leaving = false; // after Escape, Tab leaves the editor
  const line = editor => { // the caret's line, up to the caret
    const range = getSelection().getRangeAt(0).cloneRange();
    range.setStart(editor, 0);
    return plain(range.cloneContents()).split("\n").at(-1);
  };
  const type = (event, text) => {
    event.preventDefault();
    document.execCommand("insertText", false, text); // the one way that undo knows of
  };
  const press = (event, cell) => {
    const { key, shiftKey } = event, selected = !getSelection().isCollapsed;
    event.stopPropagation(); // for the theme, "/" asks for its search
    if (key === "Enter" && (shiftKey || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      enqueue([cell]);
      const next = shown.slice(shown.indexOf(cell) + 1).find(other => other.editor?.checkVisibility({ visibilityProperty: true }));
      if (shiftKey) next?.editor.focus();
    } else if (key === "Enter") {
      const before = line(cell.editor);
      type(event, `\n${before.match(/^ */)[0]}${before.trimEnd().endsWith(":") ? "    " : ""}`);
    } else if (key === "Tab" && !leaving && !shiftKey) {
      if (selected) event.preventDefault();
      else type(event, " ".repeat(4 - line(cell.editor).length % 4));
    } else if (key === "Backspace" && !selected && /^( {4})+$/.test(line(cell.editor))) {
      event.preventDefault();
      for (let i = 0; i < 4; i++) document.execCommand("delete");
    }
    if (key !== "Shift") leaving = key === "Escape";
  };

  const reset = cell => {
    if (cell === running) {
      interrupt();
      return document.addEventListener("live:done", () => reset(cell), { once: true });
    }
    if (queue.includes(cell)) queue.splice(queue.indexOf(cell), 1);
    const mine = code(cell);
    if (cell.editor) cell.editor.replaceChildren(...cell.original.map(node => node.cloneNode(true)));
    if (cell.editor) keep(cell);
    cell.element.querySelector(".cell_output")?.remove();
    if (cell.stored) cell.element.append(cell.stored);
    cell.stored?.replaceChildren(...cell.outputs);
    setState(cell, "idle");
    if (mine === code(cell)) return;
    cell.status.append(" ", button("undo-reset", "Undo", `Bring back what you have written in ${cell.title}`, () => {
      cell.editor.textContent = mine;
      cell.editor.focus();
      keep(cell);
      setState(cell, "idle");
    }));
  };

  const warm = place => { // who comes here will run something
    for (const kind of ["focusin", "pointerenter"]) place.addEventListener(kind, () => connect().catch(() => {}), { once: true });
  };
  const equip = cell => {
    const input = cell.element.querySelector(".cell_input"), editor = input?.querySelector("pre");
    cell.stored = cell.element.querySelector(".cell_output");
    cell.outputs = [...cell.stored?.childNodes ?? []];
    if (!editor) return setState(cell, "idle");
    cell.editor = editor;
    cell.original = [...editor.childNodes].map(node => node.cloneNode(true));
    const attributes = { "data-editor": "", contenteditable: "plaintext-only", role: "textbox", "aria-multiline": "true",
      "aria-label": `Code of ${cell.title}`, "aria-describedby": "live-keys", spellcheck: "false", autocapitalize: "off" };
    for (const [name, value] of Object.entries(attributes)) editor.setAttribute(name, value);
    if (!editor.isContentEditable) editor.contentEditable = "true"; // an older browser, which would keep pasted colours
    editor.addEventListener("keydown", event => press(event, cell));
    editor.addEventListener("input", () => keep(cell));
    editor.addEventListener("focus", () => { leaving = false; });
    cell.status = make("span", { class: "live-state" });
    const tools = make("div", { class: "live-tools", role: "group", "aria-label": `Run ${cell.title}` },
      button("run", "Run", `Run ${cell.title}`, () => enqueue([cell])),
      button("run-above", "Run all above", `Run all above ${cell.title}`, () => runAbove(cell)),
      button("reset", "Reset", `Reset ${cell.title} to what the book has`, () => reset(cell)), cell.status);
    (input.closest("details") ?? input).after(tools);
    [editor, tools].forEach(warm);
    const edit = edits()[cell.key];
    if (edit !== undefined) editor.textContent = edit;
    keep(cell);
    setState(cell, "idle");
  };

  // --- the page ---
  const says = make("p", { class: "visually-hidden", "aria-live": "polite" });
  const say = text => { says.textContent = text; };
  const state = make("span", { class: "live-kernel" });
  const NAMES = { none: "not started", idle: "ready", busy: "busy", starting: "starting", connecting: "connecting", restarting: "restarting" };
  const setKernel = (name, reason) => {
    state.dataset.kernel = name;
    state.textContent = reason ?? `kernel ${NAMES[name]}`;
  };
  const bar = make("section", { class: "live-bar", "aria-label": "Run this page" },
    button("run-all", "Run all", "Run all cells", () => enqueue(shown)), button("interrupt", "Interrupt", "Interrupt the kernel", interrupt),
    button("restart", "Restart", "Restart the kernel", restart), state, says,
    make("p", { id: "live-keys", class: "visually-hidden" }, "Shift+Enter runs the cell. Escape, then Tab, leaves the editor."));
  document.querySelector(".live-note").remove();
  document.querySelector("article").append(bar);
  setKernel("none");
  warm(bar.firstChild);
  shown.forEach(equip);
  document.body.dataset.live = "ready";
});
