// The page of a comparison: what is selected, and the views of it.

const diff = new Comparison(JSON.parse(byId('data').textContent));
const state = { tab: 'flame', metric: 'self', func: -1, search: '' };
const colors = new Changes(diff.tree);
const metrics = document.querySelectorAll('.metric select');
let isHit = null;

const on = {
  hover: (view, n, event) => n < 0 ? tip(null) : tip(event, diff.names[view.tree.func[n]], call_line(view, n)),
  choose: (view, n) => details(view, n),
  open: (view, n) => open_function(view.tree.func[n]),
  zoom: () => chips(),
};
const flame = new Flame(document.querySelector('#flame .flame'), { on });
const callersView = new Flame(document.querySelector('.callers'), { isUpsideDown: true, on: { ...on, zoom: undefined } });
const calleesView = new Flame(document.querySelector('.callees'), { on: { ...on, zoom: undefined } });
const table = new Table(byId('table'), change_columns(diff, () => state.metric), {
  choose: (f) => choose_function(f),
  open: (f) => open_function(f),
  hover: (f, event) => f < 0 ? tip(null) : tip(event, diff.names[f], row_line(diff.rows[f])),
});

const line_columns = change_columns(diff.lines, () => state.metric).filter(({ key }) => key !== 'image');
line_columns.find(({ key }) => key === 'function').label = 'Line';
const lines = new Table(byId('lines'), line_columns, {
  choose: (n) => choose_line(n),
  open: () => {},
  hover: (n, event) => n < 0 ? tip(null) : tip(event, diff.lines.names[n], row_line(diff.lines.rows[n])),
});

const shortNames = [];
function label(f) {
  return shortNames[f] ??= short_name(diff.names[f]);
}

function metric_line(name, { share, q }) {
  return `${name} ${share.base.toFixed(2)} % → ${share.new.toFixed(2)} %, ${points(share.diff)} (${interval(share)}), q ${q_text(q)}`;
}

// Returns the line on a function or a path.
function row_line({ change, by, self, total }) {
  const lines = self === total ? [metric_line('self, total', total)] : [metric_line('total', total)];
  if (self && self !== total) lines.push(metric_line('self', self));
  return [verdict(change, by), ...lines].join('\n');
}

function call_line({ tree }, n) {
  // A row has an interval; sums over several paths have none.
  if (tree.rows && n > 0) return row_line(tree.rows[n]);
  return `${tree.base[n].toFixed(2)} % → ${tree.new[n].toFixed(2)} %, ${points(tree.new[n] - tree.base[n])}`;
}

function details(view, n) {
  const isRoot = n === 0 && view.tree === diff.tree, f = n >= 0 && !isRoot ? view.tree.func[n] : n < 0 ? state.func : -1;
  byId('name').textContent = isRoot ? diff.names[diff.root] : f < 0 ? '' : diff.names[f];
  const line = n >= 0 ? call_line(view, n) : f >= 0 && diff.rows[f] ? row_line(diff.rows[f])
    : 'Click a call to zoom, double-click it for its callers and callees.';
  byId('numbers').textContent = line.replaceAll('\n', ' · ');
  const button = byId('show-callers');
  button.hidden = f < 0 || state.tab === 'functions' && f === state.func;
  button.onclick = () => open_function(f);
}

// Shows a function in the tab of functions.
function open_function(f) {
  state.tab = 'functions';
  state.func = f;
  show_tab();
}

function choose_function(f) {
  state.func = f;
  table.choose(f);
  show_sandwich();
  details(table, -1);
  save();
}

function choose_line(n) {
  lines.choose(n);
  byId('name').textContent = diff.lines.names[n];
  byId('numbers').textContent = row_line(diff.lines.rows[n]).replaceAll('\n', ' · ');
  byId('show-callers').hidden = true;
}

function show_lines() {
  const found = functions_with(state.search, diff.lines);
  byId('matches').textContent = found ? count(found.reduce((a, b) => a + b, 0)) : '';
  lines.show(diff.lines.rows.map((_, n) => n).filter((n) => !found || found[n]));
  const n = lines.order.includes(lines.chosen) ? lines.chosen : lines.order[0];
  if (n >= 0) choose_line(n);
}

function show_table() {
  table.show(diff.rows.map((_, f) => f).filter((f) => !isHit || isHit[f]));
  if (state.func < 0 && table.order.length > 0) state.func = table.order[0];
  table.choose(state.func);
}

function show_sandwich() {
  const f = state.func;
  if (f < 0) return;
  byId('chosen').textContent = diff.names[f];
  show_estimates(diff.rows[f]);
  for (const [view, merge] of [[callersView, callers], [calleesView, callees]]) view.show(diff.merged(f, merge), colors, label, isHit);
}

// Shows all numbers of a function; a function of paths only has no row.
function show_estimates(row) {
  const box = byId('estimates'), { unit } = diff;
  box.replaceChildren();
  if (!row) return;
  const line = (cells) => {
    const element = add(box, 'tr');
    cells.forEach((text, at) => add(element, at === 0 ? 'th' : 'td', '', text));
  };
  const head = add(box, 'tr');
  for (const text of ['', 'base', 'new', 'change', `${diff.confidence} % interval`, 'q', 'samples']) add(head, 'th', '', text);
  for (const [name, metric] of [['self', row.self], ['total', row.total]]) {
    if (!metric) continue;
    const { share, q, samples, amount: of } = metric;
    line([name, share.base.toFixed(2) + ' %', share.new.toFixed(2) + ' %', points(share.diff), interval(share), q_text(q), samples.map(count).join(' → ')]);
    if (of) line(['', amount(of.base, unit), amount(of.new, unit), signed_amount(of.diff, unit), `${signed_amount(of.low, unit)} .. ${signed_amount(of.high, unit)}`]);
  }
}

function show_legend() {
  const box = byId('legend');
  box.textContent = 'Width: mean share of both sides';
  for (const [part, text] of [[1, 'takes more'], [-1, 'takes less'], [0, 'the interval contains 0']]) {
    add(box, 'i').style.background = colors.shade(part);
    box.append(text);
  }
}

function chips() {
  byId('chips').replaceChildren();
  if (flame.zoomed < 0 || state.tab !== 'flame') return;
  add(byId('chips'), 'button', 'chip', 'in ' + label(diff.tree.func[flame.zoomed])).addEventListener('click', () => flame.zoom(-1));
}

// Shows what the search finds, and the view of the tab.
function update() {
  colors.set_dark(is_dark());
  isHit = functions_with(state.search, diff);
  show_legend();
  show_tab();
}

function show_tab() {
  show_panel(state.tab);
  byId('matches').textContent = isHit ? count(isHit.subarray(0, diff.rows.length).reduce((a, b) => a + b, 0)) : '';
  if (state.tab === 'flame') flame.show(diff.tree, colors, label, isHit);
  if (state.tab === 'functions') {
    show_table();
    show_sandwich();
  }
  details(flame, state.tab === 'flame' ? flame.chosen : -1);
  if (state.tab === 'lines') show_lines();
  chips();
  save();
}

function save() {
  save_words(() => {
    const words = new URLSearchParams();
    if (state.tab !== 'flame') words.set('tab', state.tab);
    if (state.metric !== 'self') words.set('metric', state.metric);
    if (state.func >= 0 && state.tab === 'functions') words.set('function', state.func);
    if (state.search) words.set('search', state.search);
    return words;
  });
}

function restore() {
  const words = new URLSearchParams(location.hash.slice(1)), f = Number(words.get('function') ?? -1);
  if (['functions', 'lines', 'recording'].includes(words.get('tab'))) state.tab = words.get('tab');
  if (words.get('metric') === 'total') state.metric = 'total';
  if (Number.isInteger(f) && f >= 0 && f < diff.rows.length) state.func = f;
  state.search = byId('search').value = words.get('search') ?? '';
}

const KEYS = [
  ['/', 'search'], ['1 2 3 4', 'flame graph, functions, lines, comparison'], ['arrows', 'go to calls above, below and beside; rows of the table'],
  ['Enter', 'zoom to the call'], ['Backspace', 'zoom out by one call'], ['c', 'callers and callees of the call'],
  ['Esc', 'show everything again'], ['t', 'dark or light'], ['?', 'these keys'],
];

function escape() {
  if (!state.search) return flame.zoom(-1);
  state.search = byId('search').value = '';
  update();
}

function begin() {
  document.title = 'nprof: ' + diff.command;
  byId('command').textContent = byId('command').title = diff.command;
  show_facts(byId('recording'), diff.facts, diff.notes);
  show_keys(KEYS);
  restore();
  begin_theme(update);
  update();
  for (const metric of metrics) {
    metric.value = state.metric;
    metric.addEventListener('change', () => {
      for (const other of metrics) other.value = metric.value;
      state.metric = metric.value;
      update();
    });
  }
  connect(state, { update, show_tab, escape }, {
    c: () => flame.chosen > 0 && open_function(diff.tree.func[flame.chosen]),
  });
}

begin();
