// Starts the page: filters, theme, keys, and the state in the address.

const SEARCH = document.getElementById("q");
const SELECTS = Object.fromEntries(FILTERS.map((name) => [name, document.getElementById(`by-${name}`)]));

function fillSelects() {
  for (const name of FILTERS) {
    const counts = new Map();
    for (const item of CASES) {
      for (const content of new Set(FILTER_VALUES[name](item))) counts.set(content, (counts.get(content) || 0) + 1);
    }
    const names = [...counts.keys()].sort((a, b) => String(a).localeCompare(String(b), "en", { numeric: true }));
    SELECTS[name].append(h("option", { value: "" }, "all"),
      ...names.map((content) => h("option", { value: content }, `${words(content)} (${counts.get(content).toLocaleString("en-US")})`)));
    SELECTS[name].closest("label").hidden = names.length < 2;
    SELECTS[name].addEventListener("change", () => setState({ [name]: SELECTS[name].value }));
  }
}

function clearFilters() {
  setState(Object.fromEntries([["q", ""], ...FILTERS.map((name) => [name, ""])]));
  SEARCH.focus();
}

let last = null;
let lastChoices = null;

/** Brings the page to the state that the address holds. */
function update() {
  const state = readState();
  const listed = Object.fromEntries(LISTED.map((name) => [name, state[name]]));
  const key = JSON.stringify(listed);
  const choices = JSON.stringify(CHOICES.map((name) => state[name]));
  if (key !== last || choices !== lastChoices) {
    lastChoices = choices;
    const cases = filtered(state);
    showSweeps(state, cases);
    showBatches(state, cases);
    showBits(state, cases);
  }
  if (key !== last) {
    last = key;
    if (document.activeElement !== SEARCH || SEARCH.value.trim() !== state.q) SEARCH.value = state.q;
    for (const name of FILTERS) {
      SELECTS[name].value = state[name];
      // A link may hold what this report does not have: nothing passes, and that is to be seen.
      if (SELECTS[name].value !== state[name]) {
        SELECTS[name].append(h("option", { value: state[name] }, `${state[name]} (0)`));
        SELECTS[name].value = state[name];
      }
      SELECTS[name].closest("label").classList.toggle("active", Boolean(state[name]));
    }
    const cases = filtered(state);
    showSwitches(state);
    showMatrix(state, cases);
    showStandings(state, cases);
    document.getElementById("clear").hidden = !isFiltered(state);
  }
  showDetail(state);
}

let waiting = 0;
SEARCH.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => setState({ q: SEARCH.value.trim() }, { replace: true }), 80);
});
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("clear").addEventListener("click", clearFilters);

addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName);
  if (event.key === "/" && !typing && !DIALOG.open && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    SEARCH.focus();
    SEARCH.select();
  } else if (event.key === "Escape" && !DIALOG.open && isFiltered(readState())) {
    clearFilters();
  }
});

// Links of the page change the state, and keep what else is chosen.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const hash = link.getAttribute("href").slice(1);
  if (!hash.includes("=")) {
    const target = document.getElementById(hash);
    target?.scrollIntoView();
    target?.querySelector("a, button, input, [tabindex]")?.focus({ preventScroll: true });
    return;
  }
  const wanted = Object.fromEntries(new URLSearchParams(hash));
  if (wanted.case) {
    setState({ case: wanted.case });
  } else {
    delete wanted.all;
    setState({ q: "", ...Object.fromEntries(FILTERS.map((name) => [name, ""])), ...wanted });
    document.getElementById("matrix").scrollIntoView();
  }
});

const THEME = document.getElementById("theme");
const systemDark = matchMedia("(prefers-color-scheme: dark)");

function kept(name, content) {
  // Some browsers keep nothing for files; the theme is then that of the system at each visit.
  try {
    if (content === undefined) return localStorage.getItem(name);
    localStorage.setItem(name, content);
  } catch { /* as said */ }
  return null;
}

function showTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  const dark = theme ? theme === "dark" : systemDark.matches;
  THEME.setAttribute("aria-pressed", String(dark));
  THEME.textContent = dark ? "Light" : "Dark";
}

THEME.addEventListener("click", () => {
  const theme = THEME.getAttribute("aria-pressed") === "true" ? "light" : "dark";
  kept("cbs-report-theme", theme);
  showTheme(theme);
});
systemDark.addEventListener("change", () => showTheme(kept("cbs-report-theme")));
showTheme(kept("cbs-report-theme"));

fillSelects();
addEventListener("popstate", update);
addEventListener("hashchange", update);
update();
// Milliseconds since the page was asked for: what a reader waited.
document.documentElement.dataset.ready = String(Math.round(performance.now()));
