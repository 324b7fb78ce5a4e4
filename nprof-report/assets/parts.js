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
    set_dark(!is_dark());
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
    if (!Object.hasOwn(actions, event.key)) return;
    actions[event.key]();
    event.preventDefault();
  });
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
