// The data of the page: sums samples by event, time and thread.

// Returns moments: the node, thread, slice and sum of each. `each` returns the weight of a sample at a node,
// null if samples weigh differently.
function decoded_moments(numbers, each) {
  const node = [], track = [], slice = [], samples = [], weight = [], squares = [];
  for (let i = 0, n = 0; i < numbers.length;) {
    n += numbers[i++];
    node.push(n);
    track.push(numbers[i++]);
    slice.push(numbers[i++]);
    const count = numbers[i++], one = each(n);
    samples.push(count);
    if (one !== null) {
      weight.push(count * one);
      squares.push(count * one * one);
    } else {
      const sum = numbers[i++], effective = numbers[i++] / 1024;
      weight.push(sum);
      squares.push(effective > 0 ? sum * sum / effective : 0);
    }
  }
  return {
    count: node.length, node: Uint32Array.from(node), track: Uint32Array.from(track),
    slice: Uint32Array.from(slice), samples: Float64Array.from(samples),
    weight: Float64Array.from(weight), squares: Float64Array.from(squares),
  };
}

// The calls of all events, and the samples by leaf, thread and time.
class Profile {
  constructor(data) {
    Object.assign(this, data);
    const nodes = decoded(data.nodes);
    const tree = this.tree = new Tree(nodes.length / 2);
    let depth = -1;
    for (let n = 0; n < tree.count; n++) {
      depth = depth + 1 - nodes[2 * n];
      tree.depth[n] = depth;
      tree.func[n] = nodes[2 * n + 1];
    }
    tree.connect();
    this.byEvent = new Map();
    this.eventOf = this.events_of_nodes();
    this.outermost = tree.outermost(this.names.length);
    this.moments = decoded_moments(decoded(data.moments), (n) => this.events[this.eventOf[n]].each);
  }

  // The event of each node: that of its root.
  events_of_nodes() {
    const { tree } = this, events = new Uint16Array(tree.count);
    let root = -1;
    for (let n = 0; n < tree.count; n++) {
      if (tree.depth[n] === 0) root++;
      events[n] = this.roots[root];
    }
    return events;
  }

  // Returns what the sums of an event need: its nodes, and its moments in order of time.
  of_event(event) {
    const known = this.byEvent.get(event);
    if (known) return known;
    const { tree, moments, slices } = this;
    let first = 0, end = tree.count;
    while (first < end && this.eventOf[first] !== event) first++;
    while (end > first && this.eventOf[end - 1] !== event) end--;
    // Counting sort by slice.
    const starts = new Uint32Array(slices + 1);
    const isOf = (i) => moments.node[i] >= first && moments.node[i] < end && this.eventOf[moments.node[i]] === event;
    for (let i = 0; i < moments.count; i++) if (isOf(i)) starts[moments.slice[i] + 1]++;
    for (let slice = 0; slice < slices; slice++) starts[slice + 1] += starts[slice];
    const order = new Uint32Array(starts[slices]), next = starts.slice();
    for (let i = 0; i < moments.count; i++) if (isOf(i)) order[next[moments.slice[i]]++] = i;
    const { each } = this.events[event];
    const found = { first, end, starts, order, each: each > 0 ? each : null };
    found.own = new Sums(tree.count, found.each);
    found.all = new Sums(tree.count, found.each);
    // The time and threads that `own` has the sums of.
    Object.assign(found, { from: 0, to: 0, tracks: '' });
    this.byEvent.set(event, found);
    return found;
  }

  // Adds the moments of some slices to the sums of their nodes, or removes them. `isOn` is a flag for each thread.
  move({ order, starts, own, each }, from, to, sign, isOn) {
    const { node, track, samples, weight, squares } = this.moments;
    for (let at = starts[from]; at < starts[to]; at++) {
      const i = order[at];
      if (!isOn[track[i]]) continue;
      const n = node[i];
      own.weight[n] += sign * weight[i];
      if (each !== null) continue;
      own.samples[n] += sign * samples[i];
      own.squares[n] += sign * squares[i];
      // Differences of large squares leave a rest.
      if (own.samples[n] === 0) own.weight[n] = own.squares[n] = 0;
    }
  }

  // Sets the own sums of an event to those of a selection: by the slices that enter and leave it.
  select(found, { from, to, tracks, isMoving }) {
    const key = [...tracks].sort().join(), isOn = Uint8Array.from(this.tracks, (_, track) => tracks.size === 0 || tracks.has(track) ? 1 : 0);
    const { starts } = found, size = (a, b) => starts[Math.max(a, b)] - starts[Math.min(a, b)];
    // Squares that were added and removed leave rounding errors, which may only be seen under the brush.
    const isKept = found.each !== null || isMoving;
    if (!isKept || key !== found.tracks || size(from, found.from) + size(to, found.to) >= size(from, to)) {
      found.own.clear();
      Object.assign(found, { from, to: from, tracks: key });
    }
    // Empty ranges have no moments.
    this.move(found, from, Math.max(found.from, from), 1, isOn);
    this.move(found, found.from, Math.max(Math.min(from, found.to), found.from), -1, isOn);
    this.move(found, Math.min(found.to, to), to, 1, isOn);
    this.move(found, to, Math.max(found.to, to), -1, isOn);
    Object.assign(found, { from, to });
  }

  // Returns the sums of the samples in a selection: by node and by function. They change with the next selection.
  sums(selection) {
    const { tree } = this, { event } = selection, found = this.of_event(event), { own, all, first, end, each } = found;
    this.select(found, selection);
    const whole = { samples: 0, weight: 0, squares: 0 };
    const keys = each === null ? ['samples', 'weight', 'squares'] : ['weight'];
    const count = this.names.length, self = new Sums(count, null), total = new Sums(count, null);
    for (const key of keys) {
      const ofNodes = all[key], ofSelf = self[key], ofTotal = total[key], ownOf = own[key];
      ofNodes.set(ownOf);
      // Parents come before their children.
      for (let n = end - 1; n >= first; n--) {
        const parent = tree.parent[n], sum = ofNodes[n];
        if (parent >= 0) ofNodes[parent] += sum;
        else whole[key] += sum;
        if (this.outermost[n]) ofTotal[tree.func[n]] += sum;
        if (parent >= 0) ofSelf[tree.func[n]] += ownOf[n];
      }
    }
    if (each !== null) {
      for (const sums of [self, total]) {
        for (let f = 0; f < count; f++) {
          sums.samples[f] = sums.weight[f] / each;
          sums.squares[f] = sums.weight[f] * each;
        }
      }
      whole.samples = whole.weight / each;
      whole.squares = whole.weight * each;
    }
    return { own, all, self, total, whole };
  }

  // Returns the weight of each slice of each thread, of one event.
  activity(event) {
    const { moments, slices } = this, rows = this.tracks.map(() => new Float64Array(slices));
    for (let i = 0; i < moments.count; i++) {
      if (this.eventOf[moments.node[i]] === event) rows[moments.track[i]][moments.slice[i]] += moments.weight[i];
    }
    return rows;
  }
}

// Samples, weight and sum of squared weights of a number of things. If all samples have the weight `each`,
// only weights are kept.
class Sums {
  constructor(count, each = null) {
    this.each = each;
    this.weight = new Float64Array(count);
    if (each !== null) return;
    this.samples = new Float64Array(count);
    this.squares = new Float64Array(count);
  }

  clear() {
    for (const values of [this.weight, this.samples, this.squares]) values?.fill(0);
  }

  add(to, from, index) {
    this.samples[to] += from.samples[index];
    this.weight[to] += from.weight[index];
    this.squares[to] += from.squares[index];
  }

  at(index) {
    const weight = this.weight[index], { each } = this;
    if (each !== null) return { samples: weight / each, weight, squares: weight * each };
    return { samples: this.samples[index], weight, squares: this.squares[index] };
  }
}
