// Parts that all pages have.

const byId = (id) => document.getElementById(id);

// Shows a name and a line about it beside the pointer; hides them without an event.
function tip(event, name, line) {
  const box = byId('tip');
  box.hidden = !event;
  if (!event) return;
  box.replaceChildren();
  add(box, 'b', '', name);
  add(box, 'span', '', line);
  const { width, height } = box.getBoundingClientRect();
  box.style.left = Math.max(Math.min(event.clientX + 14, innerWidth - width - 8), 4) + 'px';
  box.style.top = (event.clientY + height + 28 > innerHeight ? event.clientY - height - 12 : event.clientY + 18) + 'px';
}

function draw_name(cell, name) {
  cell.classList.add('mono');
  cell.append(name);
}

// Returns a flag for each function that has a text in its name or image; null without a text.
function functions_with(text, { names, images, image_of }) {
  const wanted = text.toLowerCase(), has = (name) => name.toLowerCase().includes(wanted);
  return wanted === '' ? null : Uint8Array.from(names, (name, f) => has(name) || has(images[image_of[f]]) ? 1 : 0);
}

// Shows the panel of a tab; the others have no size while they are hidden.
function show_panel(name) {
  for (const tab of document.querySelectorAll('[role=tab]')) {
    const isShown = tab.dataset.tab === name;
    tab.setAttribute('aria-selected', isShown);
    byId(tab.dataset.tab).hidden = !isShown;
  }
}

// Shows pairs of a name and a value, and sentences below them.
function show_facts(box, facts, notes) {
  const table = add(box, 'table');
  for (const [name, value] of facts) {
    const row = add(table, 'tr');
    add(row, 'th', '', name);
    add(row, 'td', '', value);
  }
  for (const note of notes) add(box, 'p', '', note);
}

// Lists the keys of the page in its help.
function show_keys(keys) {
  const list = byId('help').querySelector('dl');
  for (const [key, text] of keys) {
    add(list, 'dt', '', key);
    add(list, 'dd', '', text);
  }
  byId('help-button').addEventListener('click', () => byId('help').showModal());
}

const THEME = 'nprof-theme';

// Takes the theme that was chosen on an earlier page, or that of the system, and follows it.
function begin_theme(update) {
  const system = matchMedia('(prefers-color-scheme: dark)');
  set_dark((kept_theme() ?? (system.matches ? 'dark' : 'light')) === 'dark');
  system.addEventListener('change', () => {
    if (kept_theme() !== null) return;
    set_dark(system.matches);
    update();
  });
}

function kept_theme() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    // Some browsers keep nothing of files.
    return null;
  }
}

function choose_theme(isDark) {
  set_dark(isDark);
  try {
    localStorage.setItem(THEME, isDark ? 'dark' : 'light');
  } catch {
    // It holds until the page is left.
  }
}

function set_dark(isDark) {
  document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
}

function is_dark() {
  return document.documentElement.dataset.theme === 'dark';
}

// Connects search, theme, tabs and keys. `page` has `update()`, `show_tab()` and `escape()`; `keys` has the
// actions of the keys that only this page has.
function connect(state, page, keys) {
  byId('search').addEventListener('input', () => {
    state.search = byId('search').value;
    page.update();
  });
  byId('theme').addEventListener('click', () => {
    choose_theme(!is_dark());
    page.update();
  });
  const actions = {
    '/': () => byId('search').focus(), Escape: page.escape, t: () => byId('theme').click(), '?': () => byId('help').showModal(),
    ...keys,
  };
  document.querySelectorAll('[role=tab]').forEach((tab, index) => {
    tab.addEventListener('click', () => {
      state.tab = tab.dataset.tab;
      page.show_tab();
    });
    actions[index + 1] = () => tab.click();
  });
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId('help').open) return;
    if (event.target.matches?.('input, select')) {
      if (event.key !== 'Escape') return;
      event.target.blur();
      return page.escape();
    }
    if (pass_to_view(event)) return;
    if (!Object.hasOwn(actions, event.key)) return;
    actions[event.key]();
    event.preventDefault();
  });
}

// Passes a key that moves in a view to the first view of the panel, if no other has the focus. True if it did.
function pass_to_view(event) {
  const isFree = event.target === document.body, isArrow = event.key.startsWith('Arrow');
  // A button takes Enter itself.
  const isForView = isFree ? isArrow || ['Enter', 'Backspace'].includes(event.key) : isArrow && event.target.matches('button');
  const view = document.querySelector('main > section:not([hidden]) [tabindex="0"], main > section[tabindex="0"]:not([hidden])');
  if (!isForView || !view) return false;
  view.focus({ preventScroll: true });
  view.dispatchEvent(new KeyboardEvent('keydown', { key: event.key }));
  event.preventDefault();
  return true;
}

let saving = 0;

// Keeps the selection in the address, so that a link can show it. Browsers refuse many changes a second.
function save_words(words) {
  clearTimeout(saving);
  saving = setTimeout(() => {
    try {
      history.replaceState(null, '', '#' + words());
    } catch {
      // Some browsers refuse it for files.
    }
  }, 150);
}
