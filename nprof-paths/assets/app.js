// The page: what is selected, and the views of it.

const profile = new Profile(JSON.parse(document.getElementById('data').textContent));
const state = { tab: 'flame', event: 0, func: -1, search: '' };
let sums, colors, isHit = null, searched = '';

const on = {
  hover: (view, n, event) => {
    if (n < 0) return tip(null);
    tip(event, profile.names[view.tree.func[n]], numbers(view, n));
  },
  choose: (view, n) => details(view, n),
  open: (view, n) => open_function(view.tree.func[n], 'functions'),
  zoom: () => chips(),
};
const flame = new Flame(document.querySelector('#flame .flame'), { on });
const callersView = new Flame(document.querySelector('.callers'), { isUpsideDown: true, on: { ...on, zoom: undefined } });
const calleesView = new Flame(document.querySelector('.callees'), { on: { ...on, zoom: undefined } });
const selected = () => ({ sums, z: profile.events[state.event].z });
const table = new Table(byId('table'), function_columns(profile, selected), {
  choose: (f) => choose_function(f),
  open: (f) => open_function(f, 'code'),
  hover: (f, event) => f < 0 ? tip(null) : tip(event, profile.names[f], function_line(f)),
});
const codeView = new CodeView(byId('code'), profile, { choose: (f) => choose_function(f) });
// A brush moves more often than the screen shows frames.
const timeline = new Timeline(byId('timeline'), profile, { change: () => later(), tip });
let frame = 0;

function later() {
  frame ||= requestAnimationFrame(() => update());
}

// Returns a part of the selected samples in per cent, with its margin of error.
function part_text(part) {
  const { z } = profile.events[state.event];
  return `${share_text(part, sums.whole)} %${marginText(part, sums.whole, z, ' ± ')}`;
}

function unit() { return profile.events[state.event].unit; }

// Returns the line on a call: its image, and its part of the selected samples.
function numbers(view, n) {
  const { tree } = view, f = tree.func[n];
  if (tree !== profile.tree) {
    const part = tree.total[n] / Math.max(sums.whole.weight, 1e-9);
    return `${percent(part)} % · ${amount(tree.total[n], unit())} · ${profile.images[profile.image_of[f]]}`;
  }
  const total = sums.all.at(n), own = sums.own.at(n);
  const image = tree.depth[n] === 0 ? 'command' : profile.images[profile.image_of[f]];
  return `total ${part_text(total)} · self ${part_text(own)}\n${amount(total.weight, unit())} · ${count(total.samples)} samples · ${image}`;
}

function details(view, n) {
  const shown = n >= 0 ? view.tree.func[n] : state.func;
  const isCommand = n >= 0 && view.tree === profile.tree && view.tree.depth[n] === 0;
  byId('name').textContent = shown < 0 ? '' : profile.names[shown];
  byId('numbers').textContent = n >= 0 ? numbers(view, n).replace('\n', ' · ') : shown < 0 ? hint() : function_line(shown);
  const button = byId('show-callers');
  button.hidden = shown < 0 || isCommand || state.tab === 'functions' && shown === state.func;
  button.onclick = () => open_function(shown, 'functions');
  byId('show-code').hidden = shown < 0 || isCommand || state.tab === 'code' || !codeView.has(shown);
  byId('show-code').onclick = () => open_function(shown, 'code');
}

function hint() {
  return 'Click a call to zoom, double-click it for its callers and callees. Drag on the timeline to select time.';
}

function function_line(f) {
  const [self, total] = [sums.self.at(f), sums.total.at(f)];
  return `self ${part_text(self)} · total ${part_text(total)} · ${amount(total.weight, unit())} · ${profile.images[profile.image_of[f]]}`;
}

// Shows a function in the tab of functions or of code.
function open_function(f, tab) {
  if (tab === 'code' && !codeView.code) return;
  state.tab = tab;
  choose_function(f);
  show_tab();
}

function choose_function(f) {
  state.func = f;
  table.choose(f);
  show_sandwich();
  show_code();
  details(table, -1);
  save();
}

function show_sandwich() {
  if (state.tab !== 'functions') return;
  if (state.func < 0 && table.order.length > 0) {
    state.func = table.order[0];
    table.choose(state.func);
  }
  const f = state.func;
  if (f < 0) return;
  byId('chosen').textContent = profile.names[f];
  const key = `${state.event} ${f}`, weights = sums.all.weight;
  // The paths stay while time and threads change.
  if (merged.key !== key) merged = { key, callers: callers(profile, state.event, weights, f), callees: callees(profile, state.event, weights, f) };
  for (const [view, tree] of [[callersView, merged.callers], [calleesView, merged.callees]]) {
    tree.sum(weights);
    view.show(tree, colors, label, isHit);
  }
}

let merged = { key: '' };

function show_code() {
  if (state.tab === 'code') codeView.show(state.func, sums, selection(), timeline.isMoving);
}

function show_flame() {
  if (state.tab === 'flame') flame.show(profile.tree, colors, label, isHit);
}

function show_table() {
  if (state.tab !== 'functions') return;
  const functions = [];
  for (let f = 0; f < profile.names.length; f++) {
    if (sums.total.samples[f] > 0 && (!isHit || isHit[f])) functions.push(f);
  }
  table.show(functions);
}

// Returns the event, time and threads that are selected, and whether the brush moves.
function selection() {
  const { from, to, tracks, isMoving } = timeline;
  return { event: state.event, from, to, tracks, isMoving };
}

const shortNames = [];
function label(f) {
  return shortNames[f] ??= short_name(profile.names[f]);
}

// Shows the sums in the view of the tab: the others show them when they are seen.
function show_views() {
  show_flame();
  show_table();
  show_sandwich();
  show_code();
}

// Computes the sums of the selection and shows them.
function update() {
  cancelAnimationFrame(frame);
  frame = 0;
  sums = profile.sums(selection());
  colors ??= new Colors(profile, sums);
  colors.set_dark(is_dark());
  profile.tree.total = sums.all.weight;
  find();
  timeline.show(state.event, colors);
  show_views();
  details(flame, state.tab === 'flame' ? flame.chosen : -1);
  chips();
  const all = profile.events[state.event].samples, { samples, weight } = sums.whole;
  const part = samples < all ? `${count(samples)} of ${count(all)}` : count(all);
  byId('counted').textContent = `${part} samples · ${amount(weight, unit())}`;
  save();
}

// Sets the functions that the search finds, and the share of samples that they are in.
function find() {
  const { tree } = profile;
  if (state.search !== searched) isHit = functions_with(searched = state.search, profile);
  if (isHit === null) {
    byId('matches').textContent = '';
    return;
  }
  let weight = 0;
  for (let n = 0; n < tree.count;) {
    const isFound = tree.depth[n] > 0 && isHit[tree.func[n]];
    // Calls below are in the same samples.
    if (isFound) weight += sums.all.weight[n];
    n = isFound ? tree.end[n] : n + 1;
  }
  byId('matches').textContent = share_text({ weight }, sums.whole) + ' %';
}

function chip(text, remove) {
  const button = add(byId('chips'), 'button', 'chip', text);
  button.addEventListener('click', remove);
}

function chips() {
  byId('chips').replaceChildren();
  const { from, to, tracks } = timeline, time = (slice) => seconds(slice * profile.slice_ns);
  if (from > 0 || to < profile.slices) chip(`${time(from)} – ${time(to)}`, () => timeline.select(0, profile.slices));
  for (const track of tracks) {
    chip(profile.tracks[track], () => {
      tracks.delete(track);
      update();
    });
  }
  const z = flame.zoomed;
  if (z >= 0 && state.tab === 'flame') chip('in ' + label(profile.tree.func[z]), () => flame.zoom(-1));
}

function show_tab() {
  show_panel(state.tab);
  show_views();
  // A hidden table does not scroll.
  if (state.tab === 'functions') table.choose(state.func);
  if (sums) details(flame, state.tab === 'flame' ? flame.chosen : -1);
  chips();
  save();
}

function save() {
  save_words(selected_words);
}

// Returns the selection as the words of the address.
function selected_words() {
  const words = new URLSearchParams();
  if (state.tab !== 'flame') words.set('tab', state.tab);
  if (state.event > 0) words.set('event', state.event);
  if (timeline.from > 0 || timeline.to < profile.slices) {
    words.set('time', [timeline.from, timeline.to].map((slice) => slice * profile.slice_ns / 1e9).join('..'));
  }
  if (timeline.tracks.size > 0) words.set('threads', [...timeline.tracks].join(','));
  if (state.func >= 0 && ['functions', 'code'].includes(state.tab)) words.set('function', state.func);
  if (state.search) words.set('search', state.search);
  return words;
}

function restore() {
  const words = new URLSearchParams(location.hash.slice(1));
  const number = (text, end) => Number.isInteger(+text) && +text >= 0 && +text < end ? +text : -1;
  if (['functions', 'code', 'recording'].includes(words.get('tab'))) state.tab = words.get('tab');
  if (state.tab === 'code' && !codeView.code) state.tab = 'flame';
  state.event = Math.max(number(words.get('event') ?? 0, profile.events.length), 0);
  const [from, to] = (words.get('time') ?? '').split('..').map((time) => Math.round(time * 1e9 / profile.slice_ns));
  // A link may be that of a longer recording.
  const end = Math.min(to, profile.slices);
  if (from >= 0 && end > from) [timeline.from, timeline.to] = [from, end];
  for (const track of (words.get('threads') ?? '').split(',')) {
    if (track !== '' && number(track, profile.tracks.length) >= 0) timeline.tracks.add(+track);
  }
  state.func = words.has('function') ? number(words.get('function'), profile.names.length) : -1;
  table.chosen = state.func;
  state.search = byId('search').value = words.get('search') ?? '';
}

const KEYS = [
  ['/', 'search'], ['1 2 3 4', 'flame graph, functions, code, recording'], ['arrows', 'go to calls above, below and beside; rows of a table'],
  ['Tab', 'go to the timeline, where arrows select time and threads'],
  ['Enter', 'zoom to the call; the code of a function; the target of a jump'], ['Backspace', 'zoom out by one call'], ['c', 'callers and callees of the call'], ['s', 'source and instructions of the function'],
  ['Esc', 'show everything again, step by step'], ['t', 'dark or light'], ['?', 'these keys'],
];

// Takes back the latest restriction: search, zoom, threads, time.
function escape() {
  if (state.search) {
    state.search = byId('search').value = '';
    return update();
  }
  if (flame.zoomed >= 0) return flame.zoom(-1);
  timeline.tracks.clear();
  [timeline.from, timeline.to] = [0, profile.slices];
  update();
}

// Returns the function of the call that is chosen in the flame graph; -1 if none is.
function chosen_function() {
  return flame.chosen >= 0 && profile.tree.depth[flame.chosen] > 0 ? profile.tree.func[flame.chosen] : -1;
}

function begin() {
  document.title = 'nprof: ' + profile.command;
  byId('command').textContent = byId('command').title = profile.command;
  profile.events.forEach((event, index) => { add(byId('event'), 'option', '', event.name).value = index; });
  byId('event').hidden = profile.events.length < 2;
  show_facts(byId('recording'), profile.facts, profile.notes);
  show_keys(KEYS);
  byId('tab-code').hidden = !codeView.code;
  restore();
  byId('event').value = state.event;
  begin_theme(update);
  update();
  show_tab();
  byId('event').addEventListener('change', () => {
    state.event = +byId('event').value;
    colors = null;
    update();
  });
  connect(state, { update, show_tab, escape }, {
    c: () => chosen_function() >= 0 && open_function(chosen_function(), 'functions'),
    s: () => open_function(state.tab === 'flame' ? chosen_function() : state.func, 'code'),
  });
}

begin();
