// The page of the translation server. Text from the server is only ever put in as text, never as HTML.

const $ = (id) => document.getElementById(id);
const source = $("source"), mirror = $("mirror"), output = $("output"), panel = $("panel");
const fromList = $("source-language"), toList = $("target-language"), correction = $("correction");

const state = {
  languages: [],      // of the server: {code, name, targets}
  detected: null,     // the language of the text, if the person leaves it to the server
  sample: null,       // the text of which it was detected
  limit: -1,          // the most characters of a text; -1: any number
  delay: 400,         // milliseconds without a key before the text is sent
  keyRequired: false,
  terms: [],          // pairs of texts, for the two languages
  lines: [],          // what is shown, line by line: {space, text, sentences, items}
  words: [],          // of the translation that is shown, in order
  sourceWords: [],
  active: [0, 0],     // the sentence and the word of the translation that have the focus, or would get it
  open: null,         // the word whose panel is open
};
const translated = new Map();  // a piece of text, with its languages and terms: its sentences
const cuts = new Set();        // the words around each place at which the server has cut a text into sentences
const chosen = new Map();      // a sentence, with its languages: the translation that the person made or chose
const undoable = [];           // {key, before}
let running = null, asking = null, timer = null;  // the translation, the panel's request, the next try

function make(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.textContent = text;
  return node;
}

// What the browser keeps. It may forbid that; then the page works without.
function kept(storage, name) {
  try { return JSON.parse(window[storage].getItem(`translate ${name}`)); } catch { return null; }
}
function keep(storage, name, value) {
  try { window[storage].setItem(`translate ${name}`, JSON.stringify(value)); } catch { /* forbidden or full */ }
}

// ---- The server

class Problem extends Error {
  constructor(text, wait = 0, again = true) {
    super(text);
    this.wait = wait;    // seconds until the next try, or 0
    this.again = again;  // whether another try may help
  }
}

async function ask(path, body, signal) {
  const isForm = body instanceof FormData, headers = {};
  if (body && !isForm) headers["Content-Type"] = "application/json";
  if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
  let response, answer;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET", headers, signal, body: isForm || !body ? body : JSON.stringify(body),
    });
    answer = await response.json().catch(() => null);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(`${navigator.onLine ? "The server does not answer." : "You are offline."} Your text stays here.`);
  }
  signal?.throwIfAborted();
  if (response.ok && answer) return answer;
  throw problemOf(response, answer?.error ?? "");
}

function problemOf(response, text) {
  const { status } = response, said = text && ` It says: ${text}`;
  if (status === 429) {
    const wait = Math.max(1, Math.min(600, Number(response.headers.get("Retry-After")) || 10));
    return new Problem(`Too many requests. The page tries again in ${wait} s.${said}`, wait);
  }
  if (status === 401 || status === 403) $("key-form").hidden = false;
  if (status >= 500) return new Problem(`The server has a problem (${status}).${said} Your text stays here.`);
  return new Problem(text || `The server's answer cannot be used (${status}).`);
}

const keyField = () => ($("key").value ? { api_key: $("key").value } : {});

function request(texts, more) {
  const terms = state.terms.map(([term, targets]) => (
    { source: term, targets: targets.split("|").map((one) => one.trim()).filter(Boolean) }
  )).filter((term) => term.targets.length);
  return { ...languages(), texts, alignment: true, ...(terms.length && { terms }), ...more };
}

function showProblem(error, again) {
  if (!(error instanceof Problem)) console.error(error);
  const box = $("problem"), button = box.querySelector("button");
  box.querySelector("p").textContent =
    error instanceof Problem ? error.message : "The page cannot use the server's answer.";
  button.hidden = error.again === false;
  button.onclick = again;
  box.hidden = false;
  status("");
  if (error.wait) timer = setTimeout(again, error.wait * 1000);
}

function status(text) {
  $("status").textContent = text;
}

// ---- Languages

const language = (code) => state.languages.find((one) => one.code === code);
const nameOf = (code) => language(code)?.name ?? code;
const languages = () => ({ source: fromList.value === "auto" ? state.detected : fromList.value, target: toList.value });

function option(value, text) {
  const node = make("option", "", text);
  node.value = value;
  return node;
}

function listTargets(wanted) {
  const from = language(fromList.value);
  const codes = new Set(from ? from.targets : state.languages.flatMap((one) => one.targets));
  codes.delete(from?.code);
  const able = state.languages.filter((one) => codes.has(one.code));
  toList.replaceChildren(...able.map((one) => option(one.code, one.name)));
  if (codes.has(wanted)) toList.value = wanted;
}

function listSources(source, target) {
  const able = state.languages.filter((one) => one.targets.some((code) => code !== one.code));
  fromList.replaceChildren(...able.map((one) => option(one.code, one.name)));
  if (able.length > 1) fromList.prepend(option("auto", "Detect language"));
  fromList.value = source;
  if (fromList.selectedIndex < 0) fromList.value = able[0]?.code ?? "";
  listTargets(target);
}

function languagesChanged() {
  const { source: from, target } = languages();
  source.lang = (from ?? "").replace("_", "-");
  output.lang = target.replace("_", "-");
  $("swap").disabled = !from || from === target || !language(target)?.targets.includes(from);
  const detect = fromList.querySelector("[value=auto]");
  const isDetected = state.detected && fromList.value === "auto";
  if (detect) detect.textContent = isDetected ? `Detected: ${nameOf(state.detected)}` : "Detect language";
  loadTerms();
}

async function detectLanguage(signal) {
  const sample = source.value.trim().slice(0, 300);
  if (fromList.value === "auto" && sample !== state.sample) {
    const [best] = await ask("detect", { q: sample, ...keyField() }, signal);
    state.detected = best?.language ?? null;
    state.sample = sample;
    languagesChanged();
  }
  const { source: from, target } = languages();
  if (!language(from)?.targets.includes(target)) {
    const told = fromList.value !== "auto" ? ""
      : `The text seems to be in ${nameOf(from)}. Choose its language if that is wrong. `;
    throw new Problem(`${told}This server has no translation from ${nameOf(from)} into ${nameOf(target)}.`, 0, false);
  }
}

function swap() {
  const { source: from, target } = languages(), text = isComplete() ? translation() : source.value;
  listSources(target, from);
  languagesChanged();
  replaceText(text);
}

// ---- Sentences

// Where a sentence surely ends without white space after it: at a wide full stop and the quotes that follow.
const GAP = /\s+|(?<=[。！？｡][」』）】”’"»)]*)(?=[^\s。！？｡」』）】”’"»)])/gu;
const edge = (before, after) => `${before.slice(-40).match(/\S*$/)[0]} ${after.slice(0, 40).match(/^\S*/)[0]}`;
const context = () => JSON.stringify([languages(), state.terms]);
const sentenceKey = (sentence) => JSON.stringify([languages(), sentence.source]);

// Cuts a line where the server has cut between the same words before: so only what has changed is sent again.
function piecesOf(line) {
  const body = line.trimEnd(), pieces = [];
  let space = body.match(/^\s*/)[0], start = space.length;
  for (const gap of body.matchAll(GAP)) {
    const end = gap.index + gap[0].length;
    if (gap.index <= start || (gap[0] && !cuts.has(edge(body.slice(start, gap.index), body.slice(end))))) continue;
    pieces.push({ space, text: body.slice(start, gap.index) });
    [space, start] = [gap[0], end];
  }
  if (start < body.length) pieces.push({ space, text: body.slice(start) });
  return pieces;
}

function remember(piece, sentences) {
  const now = context();
  if (translated.size > 20000) translated.clear();
  translated.set(now + piece, sentences);
  sentences.forEach((sentence, at) => {
    if (sentences.length > 1) translated.set(now + sentence.source, [{ ...sentence, space: "" }]);
    if (at > 0 && sentence.space) cuts.add(edge(sentences[at - 1].source, sentence.source));
  });
}

function* groupsOf(texts) {
  let group = [], size = 0;
  for (const text of texts) {
    if (group.length && (group.length === 16 || size + text.length > 1500)) {
      yield group;
      [group, size] = [[], 0];
    }
    group.push(text);
    size += text.length;
  }
  if (group.length) yield group;
}

async function translate() {
  running?.abort();
  clearTimeout(timer);
  const mine = running = new AbortController();
  $("problem").hidden = true;
  try {
    if (source.value.trim()) await translateText(mine.signal);
    else status("");
    render();
  } catch (error) {
    if (mine === running) showProblem(error, state.languages.length ? translate : start);
  } finally {
    if (mine === running) output.removeAttribute("aria-busy");
  }
}

async function translateText(signal) {
  const excess = source.value.length - state.limit;
  if (state.limit >= 0 && excess > 0) {
    throw new Problem(`The text is ${excess} characters longer than this server allows.`, 0, false);
  }
  if (state.keyRequired && !$("key").value) {
    throw new Problem("This server asks for an API key: enter it above.", 0, false);
  }
  if (!state.languages.length) throw new Problem("The server's languages are not known yet.");
  output.setAttribute("aria-busy", "true");
  status("Translating…");
  await detectLanguage(signal);
  const texts = source.value.split("\n").flatMap(piecesOf).map((piece) => piece.text);
  const missing = [...new Set(texts)].filter((text) => !translated.has(context() + text));
  for (const group of groupsOf(missing)) {
    const answer = await ask("v1/translate", request(group, { by_sentence: true }), signal);
    group.forEach((text, at) => remember(text, answer.translations[at].sentences));
    render();
  }
  const items = shownItems(), doubtful = items.filter((item) => reasons(item.shown).length).length;
  const counted = items.length === 1 ? "1 sentence" : `${items.length} sentences`;
  status(doubtful ? `${counted}, ${doubtful} doubtful` : counted);
}

// ---- What is shown

const shownItems = () => state.lines.flatMap((line) => line.flatMap((piece) => piece.items ?? []));
const isComplete = () => state.words.length > 0 && state.lines.every((line) => line.every((piece) => piece.items));
const WITHOUT_SPACES = /^(zh|zt|ja|th|lo|km|my|zho|chi|cmn|yue|jpn|tha|lao|khm|mya|bur)(?![a-z])/i;

// The words of a text; `from` and `to` count words or, in a language without spaces, characters, as alignments do.
function wordsOf(text, code) {
  if (!WITHOUT_SPACES.test(code)) {
    const words = [...text.matchAll(/[^\s\x1c-\x1f\x85]+/g)];
    return words.map((word, at) => ({ text: word[0], start: word.index, from: at, to: at + 1 }));
  }
  let to = 0;
  return [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)].map(({ segment, index }) => {
    const from = to;
    to += [...segment.replace(/\s/g, "")].length;
    return { text: segment, start: index, from, to };
  }).filter((word) => word.to > word.from);
}

function putWords(parent, text, words, item) {
  let end = 0;
  for (const word of words) {
    parent.append(text.slice(end, word.start));
    word.node = parent.appendChild(make("span", "word", word.text));
    word.node.word = Object.assign(word, { item, mates: new Set() });
    end = word.start + word.text.length;
  }
  parent.append(text.slice(end));
}

function link(item) {
  for (const [from, to] of item.shown.alignment ?? []) {
    const left = item.left.find((word) => from < word.to), right = item.right.find((word) => to < word.to);
    if (!left || !right) continue;
    left.mates.add(right);
    right.mates.add(left);
  }
}

function reasons({ doubts = [], numbers = {} }) {
  const listed = (list) => [...new Set(list)].join(", ");
  return doubts.flatMap((doubt) => {
    switch (doubt) {
      case "empty": return "not translated: the translation is empty";
      case "copied": return "not translated: the same as the source";
      case "untranslated": return "mostly words of the source";
      case "repeated": return "repeats itself";
      case "placeholders": return "other placeholders than the source";
      case "numbers": {
        const { missing = [], invented = [] } = numbers ?? {};
        const lost = missing.length ? [`number lost: ${listed(missing)}`] : [];
        const added = invented.length ? [`number not in the source: ${listed(invented)}`] : [];
        return lost.length + added.length ? [...lost, ...added] : "other numbers than the source";
      }
      default: return `doubtful: ${doubt}`;
    }
  });
}

function itemOf(sentence, left, right, offset) {
  const shown = chosen.get(sentenceKey(sentence)) ?? sentence, { source: from, target } = languages();
  const item = { sentence, shown, left: wordsOf(sentence.source, from), right: wordsOf(shown.text, target) };
  for (const word of item.left) word.at = offset + word.start;
  putWords(left, sentence.source, item.left, item);
  const span = right.appendChild(make("span", "sentence")), isEmpty = !item.right.length;
  if (isEmpty) item.right = [{ text: "–", start: 0, from: 0, to: 1 }];
  putWords(span, isEmpty ? "–" : shown.text, item.right, item);
  for (const word of item.right) word.node.classList.toggle("held", word.start < (shown.held ?? "").length);
  const doubts = reasons(shown);
  span.classList.toggle("doubtful", doubts.length > 0);
  if (doubts.length) span.append(" ", make("span", "doubt", `⚠ ${doubts.join("; ")}`));
  link(item);
  return item;
}

// The white space before a translated sentence. Languages differ in whether they have any.
function gap(space, isFirst = false) {
  if (isFirst) return space;
  return WITHOUT_SPACES.test(toList.value) ? space.replace(/^ $/, "") : space || " ";
}
const gapBefore = (sentence) => sentence.target_space ?? gap(sentence.space);

function showPiece(piece, left, right, offset) {
  const sentences = translated.get(context() + piece.text);
  let end = 0;
  left.append(piece.space);
  piece.gap = gap(piece.space, !right.hasChildNodes());
  right.append(piece.gap);
  if (!sentences) right.append(make("span", "waiting", "…"));
  piece.items = sentences?.map((sentence, at) => {
    const start = piece.text.indexOf(sentence.source, end);
    if (at) right.append(gapBefore(sentence));
    // If the server has changed the source, its words cannot be found, and are not marked.
    if (start < 0) return itemOf(sentence, make("span"), right, NaN);
    left.append(piece.text.slice(end, start));
    end = start + sentence.source.length;
    return itemOf(sentence, left, right, offset + start);
  });
  left.append(piece.text.slice(end));
}

function render() {
  const hadFocus = output.contains(document.activeElement);
  let start = 0;
  mirror.replaceChildren();
  output.replaceChildren();
  state.lines = source.value.split("\n").map((line) => {
    const left = mirror.appendChild(make("p")), right = output.appendChild(make("p")), pieces = piecesOf(line);
    right.dir = "auto";
    let offset = start;
    for (const piece of pieces) {
      offset += piece.space.length;
      showPiece(piece, left, right, offset);
      offset += piece.text.length;
    }
    start += line.length + 1;
    return pieces;
  });
  const items = shownItems(), keys = new Set(items.map((item) => sentenceKey(item.sentence)));
  items.forEach((item, at) => { item.index = at; });
  state.words = items.flatMap((item) => item.right);
  state.sourceWords = items.flatMap((item) => item.left);
  $("copy").disabled = !isComplete();
  $("undo").hidden = !undoable.some(({ key }) => keys.has(key));
  const [index, from] = state.active;
  activate(state.words.find((word) => word.item.index === index && word.from >= from) ?? state.words[0], hadFocus);
}

function translation() {
  const texts = (piece) => piece.items.map((item, at) => (at ? gapBefore(item.sentence) : piece.gap) + item.shown.text);
  return state.lines.map((line) => line.flatMap(texts).join("")).join("\n");
}

// ---- Words that belong together

function mark(word) {
  for (const node of document.querySelectorAll(".on")) node.classList.remove("on");
  for (const one of word ? [word, ...word.mates] : []) one.node.classList.add("on");
}

// Of all words of the translation, only one is reached with Tab; the arrows lead to the others.
function activate(word, focus = true) {
  const before = output.querySelector("[tabindex]");
  for (const name of ["tabindex", "role", "aria-haspopup", "aria-description"]) before?.removeAttribute(name);
  if (!word) return;
  state.active = [word.item.index, word.from];
  word.node.tabIndex = 0;
  word.node.setAttribute("role", "button");
  word.node.setAttribute("aria-haspopup", "dialog");
  const origin = [...word.mates].map((one) => one.text).join(" ");
  if (origin) word.node.setAttribute("aria-description", `from ${origin}`);
  if (focus) word.node.focus();
}

function outputKey(event) {
  const { words } = state, at = words.indexOf(event.target.word);
  if (at < 0) return;
  const isRight = getComputedStyle(event.target.closest("p")).direction === "rtl";
  const sentence = (by) => words.find((word) => word.item.index === words[at].item.index + by);
  const to = {
    [isRight ? "ArrowRight" : "ArrowLeft"]: words[at - 1], [isRight ? "ArrowLeft" : "ArrowRight"]: words[at + 1],
    ArrowUp: sentence(-1), ArrowDown: sentence(1), Home: words[0], End: words.at(-1),
  };
  if (event.ctrlKey || event.metaKey || event.altKey) {
    if (event.key !== "z" || event.altKey) return;
    undo();
  } else if (event.key === "Enter" || event.key === " ") {
    openPanel(words[at]);
  } else if (event.key in to) {
    if (to[event.key]) activate(to[event.key]);
  } else {
    return;
  }
  event.preventDefault();
}

const pointedAt = (event) => document.elementsFromPoint(event.clientX, event.clientY).find((node) => node.word)?.word;

function caretWord() {
  const at = source.selectionStart;
  return state.sourceWords.find((word) => word.at <= at && at <= word.at + word.text.length);
}

// ---- Correcting a word, and other translations

function openPanel(word, withFocus = true) {
  asking?.abort();
  activate(word, false);
  state.open = word;
  mark(word);
  const [, lead, core, tail] = word.text.match(/^([^\p{L}\p{N}]*)(.*?)([^\p{L}\p{N}]*)$/su);
  state.before = word.item.shown.text.slice(0, word.start) + (core ? lead : "");
  correction.value = core || (word.item.shown.text.trim() ? lead + tail : "");
  correction.lang = output.lang;
  panelProblem("");
  panel.hidden = false;
  placePanel();
  if (withFocus) correction.select();
  else panel.focus({ preventScroll: true });
  showOthers(word.item);
}

function placePanel() {
  if (!state.open) return;
  const pane = panel.parentNode.getBoundingClientRect(), word = state.open.node.getBoundingClientRect();
  const { bottom } = state.open.node.parentNode.getBoundingClientRect();
  panel.style.top = `${bottom - pane.top + 8}px`;
  panel.style.left = `${Math.max(12, Math.min(word.left - pane.left - 16, pane.width - panel.offsetWidth - 12))}px`;
  panel.scrollIntoView({ block: "nearest" });
}

function closePanel(focus = true) {
  if (!state.open) return;
  asking?.abort();
  panel.hidden = true;
  state.open = null;
  mark(null);
  if (focus) output.querySelector("[tabindex]")?.focus();
}

function panelProblem(text) {
  $("panel-problem").textContent = text;
  $("panel-problem").hidden = !text;
}

async function askSentence(item, more) {
  asking?.abort();
  asking = new AbortController();
  const answer = await ask("v1/translate", request([item.sentence.source], more), asking.signal);
  return answer.translations[0].sentences[0];
}

async function showOthers(item) {
  const list = panel.querySelector("ol"), { shown } = item, size = { n_best: 5, beam_size: 5 };
  list.replaceChildren();
  $("panel-status").textContent = "Looking for other translations…";
  try {
    const best = await askSentence(item, shown.held ? { ...size, prefixes: [shown.held] } : size);
    const all = new Map([shown, best, ...(best.alternatives ?? [])].reverse().map((one) => [one.text, one]));
    for (const one of [...all.values()].reverse()) {
      const button = make("button", "", one.text), score = Number.isFinite(one.score) ? one.score.toFixed(2) : "";
      button.type = "button";
      button.dir = "auto";
      button.lang = output.lang;
      if (one === shown) button.setAttribute("aria-current", "true");
      button.append(make("span", "score", score.replace("-", "−")));
      button.onclick = () => choose(item, { ...one, held: shown.held });
      list.appendChild(make("li")).append(button);
    }
    $("panel-status").textContent =
      all.size > 1 ? "The nearer a score is to 0, the more probable is the translation." : "There is no other.";
  } catch (error) {
    if (error.name !== "AbortError") $("panel-status").textContent = error.message;
  }
  placePanel();
}

async function correct(event) {
  event.preventDefault();
  const { item } = state.open, text = correction.value.trim(), held = state.before + text;
  if (!text) return;
  panelProblem("");
  panel.setAttribute("aria-busy", "true");
  try {
    const found = await askSentence(item, { prefixes: [held] });
    state.active = [item.index, (wordsOf(held, toList.value).at(-1)?.to ?? 0)];
    choose(item, { ...found, held });
  } catch (error) {
    if (error.name !== "AbortError") panelProblem(`${error.message} Your correction stays here.`);
  } finally {
    panel.removeAttribute("aria-busy");
  }
}

function choose(item, found) {
  const key = sentenceKey(item.sentence), { index } = item;
  undoable.push({ key, before: chosen.get(key) });
  chosen.set(key, found);
  closePanel(false);
  render();
  const last = state.words.findLast((word) => word.item.index === index);
  activate(state.words.find((word) => word.item.index === index && word.from >= state.active[1]) ?? last);
  status(`Changed: ${found.text}`);
}

function undo() {
  const keys = new Set(shownItems().map((item) => sentenceKey(item.sentence)));
  const at = undoable.findLastIndex(({ key }) => keys.has(key));
  if (at < 0) return;
  const [{ key, before }] = undoable.splice(at, 1);
  if (before) chosen.set(key, before);
  else chosen.delete(key);
  closePanel(false);
  render();
  activate(output.querySelector("[tabindex]")?.word);
  status("The change is undone.");
}

// ---- Terms

function loadTerms() {
  const { source: from, target } = languages(), name = `terms ${from} ${target}`;
  if (state.termsName === name) return;
  state.termsName = name;
  state.terms = kept("localStorage", name) ?? [];
  $("terms").querySelector("tbody").replaceChildren();
  for (const pair of state.terms) addTerm(pair);
  countTerms();
}

function countTerms() {
  $("terms-count").textContent = state.terms.length ? `${state.terms.length}` : "";
}

function addTerm([term, target] = ["", ""]) {
  const row = $("terms").querySelector("tbody").appendChild(make("tr")), remove = make("button", "", "Remove");
  for (const [name, value] of [["Term", term], ["Translation of the term", target]]) {
    const input = row.appendChild(make("td")).appendChild(make("input"));
    input.value = value;
    input.dir = "auto";
    input.setAttribute("aria-label", name);
  }
  row.appendChild(make("td")).append(remove);
  remove.type = "button";
  remove.setAttribute("aria-label", `Remove the term ${term}`);
  remove.onclick = () => {
    row.remove();
    termsChanged();
    $("add-term").focus();
  };
  return row;
}

function termsChanged() {
  const rows = [...$("terms").querySelectorAll("tbody tr")];
  const pairs = rows.map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()));
  state.terms = pairs.filter(([term, target]) => term && target);
  keep("localStorage", state.termsName, state.terms);
  countTerms();
  later();
}

// ---- Files

async function translateFile(event) {
  event.preventDefault();
  const [file] = $("file").files, form = new FormData(), told = $("file-status");
  const button = $("files").querySelector("button");
  const fields = { file, source: fromList.value, target: toList.value, ...keyField() };
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  told.className = "";
  told.textContent = `Translating ${file.name}…`;
  button.disabled = true;
  try {
    const { translatedFileUrl } = await ask("translate_file", form);
    const url = new URL(translatedFileUrl, location.href), link = make("a", "", "Download the translation");
    if (!/^https?:$/.test(url.protocol)) throw new Problem("The server's answer has no address of a file.");
    // Behind a proxy, the server may not know by which protocol it is reached.
    link.href = url.host === location.host ? url.pathname + url.search : url.href;
    link.download = "";
    told.textContent = `${file.name} is translated. `;
    told.append(link);
  } catch (error) {
    told.className = "problem";
    told.textContent = error.message;
  }
  button.disabled = false;
}

// ---- Start

function replaceText(text) {
  source.focus();
  source.select();
  // Unlike setting the value, this can be undone with the keys of the browser.
  if (!document.execCommand(text ? "insertText" : "delete", false, text)) source.value = text;
  changed();
}

function later() {
  closePanel(false);
  running?.abort();
  running = null;
  clearTimeout(timer);
  timer = setTimeout(translate, state.delay);
}

function changed() {
  const { length } = source.value;
  state.sourceWords = [];
  mirror.replaceChildren(...source.value.split("\n").map((line) => make("p", "", line)));
  $("count").textContent = state.limit >= 0 ? `${length} / ${state.limit}` : length ? `${length}` : "";
  $("clear").hidden = !length;
  keep("sessionStorage", "text", source.value);
  later();
}

async function copy() {
  const text = translation();
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // outside https, browsers have only the older way
    const area = document.body.appendChild(make("textarea"));
    area.value = text;
    area.select();
    document.execCommand("copy");
    area.remove();
    $("copy").focus();
  }
  status("Copied.");
}

function chooseLanguages(event) {
  if (event.target === fromList) listTargets(toList.value);
  state.sample = fromList.value === "auto" ? state.sample : null;
  if (fromList.value !== "auto") state.detected = null;
  keep("localStorage", "languages", [fromList.value, toList.value]);
  languagesChanged();
  later();
}

async function start() {
  $("problem").hidden = true;
  clearTimeout(timer);
  try {
    const [all, settings] = await Promise.all([ask("languages"), ask("frontend/settings")]);
    state.languages = all;
    state.limit = settings.charLimit ?? -1;
    state.delay = settings.frontendTimeout ?? state.delay;
    state.keyRequired = settings.keyRequired;
    $("key-form").hidden = !(settings.apiKeys || settings.keyRequired);
    $("files").hidden = !settings.filesTranslation;
    $("file").accept = (settings.supportedFilesFormat ?? []).join(",");
    $("formats").textContent = (settings.supportedFilesFormat ?? []).join(" ");
    const { source: from, target } = settings.language ?? {};
    listSources(...(kept("localStorage", "languages") ?? [from?.code ?? "auto", target?.code]));
    languagesChanged();
    changed();
  } catch (error) {
    showProblem(error, start);
  }
}

function listen() {
  source.addEventListener("input", changed);
  for (const kind of ["keyup", "click"]) source.addEventListener(kind, () => mark(caretWord()));
  source.addEventListener("pointermove", (event) => mark(pointedAt(event)));
  for (const node of [source, output]) node.addEventListener("pointerleave", () => mark(state.open));
  output.addEventListener("pointermove", (event) => { if (!state.open) mark(event.target.word); });
  output.addEventListener("focusin", (event) => mark(event.target.word));
  output.addEventListener("focusout", () => mark(state.open));
  output.addEventListener("keydown", outputKey);
  output.addEventListener("click", ({ target, pointerType }) => {
    if (target.word) openPanel(target.word, pointerType !== "touch");
  });
  for (const list of [fromList, toList]) list.addEventListener("change", chooseLanguages);
  panel.querySelector("form").addEventListener("submit", correct);
  panel.addEventListener("keydown", (event) => { if (event.key === "Escape") closePanel(); });
  $("cancel").addEventListener("click", () => closePanel());
  document.addEventListener("pointerdown", ({ target }) => {
    if (!panel.contains(target) && !target.word) closePanel(false);
  });
  $("swap").addEventListener("click", swap);
  $("clear").addEventListener("click", () => replaceText(""));
  $("undo").addEventListener("click", undo);
  $("copy").addEventListener("click", copy);
  $("terms").addEventListener("input", termsChanged);
  $("add-term").addEventListener("click", () => addTerm().querySelector("input").focus());
  $("files").querySelector("form").addEventListener("submit", translateFile);
  $("key-form").addEventListener("submit", (event) => { event.preventDefault(); later(); });
  $("key").addEventListener("change", () => { keep("sessionStorage", "key", $("key").value); later(); });
  window.addEventListener("online", () => { if (!$("problem").hidden) $("problem").querySelector("button").click(); });
  window.addEventListener("resize", placePanel);
}

$("key").value = kept("sessionStorage", "key") ?? "";
source.value = kept("sessionStorage", "text") ?? source.value;
listen();
start();
