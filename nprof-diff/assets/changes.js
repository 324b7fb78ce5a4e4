// Colours of changes, and numbers as nprof-diff prints them.

class Changes extends Palette {
  // The largest change of a path has the full colour; without a change, the largest difference.
  constructor(tree) {
    super();
    const largest = (values) => values.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
    this.full = largest(tree.shade) || largest(tree.base.map((share, n) => tree.new[n] - share)) || 1;
  }

  fill(tree, n) {
    return this.shade(tree.shade[n] / this.full);
  }

  // Returns the colour of a part of the largest change: red if it grew, blue if it shrank.
  shade(part) {
    const size = Math.min(Math.sqrt(Math.abs(part)), 1);
    if (size < .05) return this.dark ? '#333a43' : '#e3e6ea';
    const hue = part > 0 ? 6 : 214;
    return this.dark ? `hsl(${hue} ${30 + 40 * size}% ${24 + 18 * size}%)` : `hsl(${hue} ${60 + 25 * size}% ${92 - 22 * size}%)`;
  }
}

// Returns a difference in points, with its sign.
function points(difference) {
  const text = difference.toFixed(2);
  if (text === '-0.00') return '+0.00';
  return difference < 0 ? text : '+' + text;
}

function signed_amount(difference, unit) {
  return (difference < 0 ? '-' : '+') + amount(Math.abs(difference), unit);
}

function q_text(q) {
  return q < .0001 ? '<0.0001' : q.toFixed(4);
}

function interval(share) {
  return `${points(share.low)} .. ${points(share.high)}`;
}

// Returns a verdict, and whether self or total changed.
function verdict(change, by) {
  return by === '' ? change : `${change} by ${by === 'both' ? 'self and total' : by}`;
}

// Returns the class of a verdict, for its colour.
function class_of(change) {
  return { added: 'grown', grown: 'grown', removed: 'shrunk', shrunk: 'shrunk' }[change] ?? '';
}

const NOTHING = { share: { base: 0, new: 0, diff: 0, low: 0, high: 0 }, q: 1 };

// Returns the columns of the table of functions; `metric()` is self or total.
function change_columns({ names, images, image_of, rows, changes }, metric) {
  const of = (f) => rows[f][metric()] ?? NOTHING;
  // Equal ones are in the order of nprof-diff.
  const by = (value) => (a, b) => value(b) - value(a) || a - b;
  const by_text = (text) => (a, b) => text(a) < text(b) ? -1 : text(a) > text(b) ? 1 : a - b;
  const size = (f) => Math.abs(of(f).share.diff);
  const by_verdict = (a, b) => changes.indexOf(rows[a].change) - changes.indexOf(rows[b].change) || by(size)(a, b);
  const draw_share = (side) => (cell, f) => {
    const part = of(f).share[side];
    add(cell, 'i').style.width = part + '%';
    cell.append(part.toFixed(2));
  };
  const draw_change = (cell, f) => {
    const { share } = of(f);
    add(cell, 'b', share.low > 0 ? 'grown' : share.high < 0 ? 'shrunk' : '', points(share.diff));
    add(cell, 'small', '', interval(share));
  };
  const draw_verdict = (cell, f) => {
    add(cell, 'span', class_of(rows[f].change), rows[f].change);
    add(cell, 'small', '', rows[f].by);
  };
  return [
    { key: 'change', label: 'Change  interval', by: by(size), draw: draw_change },
    { key: 'base', label: 'Base %', by: by((f) => of(f).share.base), draw: draw_share('base') },
    { key: 'new', label: 'New %', by: by((f) => of(f).share.new), draw: draw_share('new') },
    { key: 'verdict', label: 'Verdict', sorted: 'other', by: by_verdict, draw: draw_verdict },
    { key: 'q', label: 'q', sorted: 'ascending', by: (a, b) => of(a).q - of(b).q || a - b, draw: (cell, f) => cell.append(q_text(of(f).q)) },
    { key: 'function', label: 'Function', sorted: 'ascending', by: by_text((f) => names[f]), draw: (cell, f) => draw_name(cell, names[f]) },
    { key: 'image', label: 'Image', sorted: 'ascending', by: by_text((f) => images[image_of[f]]), draw: (cell, f) => cell.append(images[image_of[f]]) },
  ];
}
