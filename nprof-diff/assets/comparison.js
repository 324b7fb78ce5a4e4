// The data of the page: the rows of functions and source lines, and the tree of their paths, with the numbers of nprof-diff.

// Reads numbers one after the other.
class Reader {
  constructor(text) {
    this.numbers = decoded(text);
    this.at = 0;
  }

  next() { return this.numbers[this.at++]; }

  // Even numbers are twice one that is not negative.
  signed() {
    const number = this.next();
    return number % 2 === 0 ? number / 2 : -(number + 1) / 2;
  }

  // Base, new, difference, and the ends of its interval.
  estimate(unit) {
    const [base, new_] = [this.next() / unit, this.next() / unit];
    return { base, new: new_, diff: this.signed() / unit, low: this.signed() / unit, high: this.signed() / unit };
  }
}

// Shares are in millionths of a per cent, q in millionths.
const UNIT = 1e6;

class Comparison {
  constructor(data) {
    Object.assign(this, data);
    this.rows = this.read_rows(data.rows);
    // Lines have no image.
    this.lines = { names: data.line_names, images: [''], image_of: data.line_names.map(() => 0), rows: this.read_rows(data.lines), changes: data.changes };
    this.read_tree(new Reader(data.nodes));
    this.outermost = this.tree.outermost(this.names.length);
  }

  read_rows(text) {
    const reader = new Reader(text), rows = [];
    while (reader.at < reader.numbers.length) rows.push(this.row(reader, (reader) => this.full_metric(reader)));
    return rows;
  }

  row(reader, metric) {
    const flags = reader.next(), kind = flags >> 3 & 3, total = metric(reader);
    // The self of a leaf is its total.
    const self = kind === 0 ? null : kind === 1 ? total : metric(reader);
    return { change: this.changes[flags & 7], by: ['', 'self', 'total', 'both'][flags >> 5], self, total };
  }

  // Of a path.
  metric(reader) {
    const share = reader.estimate(UNIT);
    return { share, q: reader.next() / UNIT };
  }

  // Of a function: also its samples, and its amounts if the event has any.
  full_metric(reader) {
    const metric = this.metric(reader);
    metric.samples = [reader.next(), reader.next()];
    if (this.has_amounts) metric.amount = reader.estimate(1);
    return metric;
  }

  read_tree(reader) {
    const depths = [0], calls = [-1], rows = [null];
    let depth = 0;
    while (reader.at < reader.numbers.length) {
      // Paths lie below a root that has all samples.
      depth += 1 - reader.next();
      depths.push(depth);
      calls.push(reader.next());
      rows.push(this.row(reader, (reader) => this.metric(reader)));
    }
    const tree = this.tree = new Tree(depths.length);
    tree.depth.set(depths);
    tree.func.set(calls);
    tree.func[0] = this.root;
    tree.connect();
    tree.rows = rows;
    const whole = { base: 100, new: 100, diff: 0, low: 0, high: 0 };
    rows[0] = { change: 'same', by: '', self: null, total: { share: whole, q: 1 } };
    set_sides(tree, rows.map(({ total }) => total.share.base), rows.map(({ total }) => total.share.new));
    // An interval with 0 has no colour.
    rows.forEach(({ total: { share } }, n) => { tree.shade[n] = share.low > 0 || share.high < 0 ? share.diff : 0; });
  }

  // Callers and callees need it: all paths are of one event.
  of_event() {
    return { first: 0, end: this.tree.count };
  }

  // Returns the callers or callees of a function, with the sums of both sides.
  merged(f, merge) {
    const { base, new: new_, total } = this.tree, tree = merge(this, 0, total, f);
    const sums = [base, new_].map((weights) => {
      tree.sum(weights);
      return tree.total.slice();
    });
    set_sides(tree, ...sums);
    return tree;
  }
}

// Sets the shares of both sides; calls are as wide as their mean.
function set_sides(tree, base, new_) {
  tree.base = Float64Array.from(base);
  tree.new = Float64Array.from(new_);
  tree.total = tree.base.map((share, n) => (share + tree.new[n]) / 2);
  tree.shade = tree.base.map((share, n) => tree.new[n] - share);
}
