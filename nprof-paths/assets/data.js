// The data of the page: decodes it, and sums samples by event, time and thread.

// Returns the numbers of a base64 text: 7 bits a byte, the lowest first.
function decoded(text) {
  const bytes = atob(text);
  const numbers = new Float64Array(bytes.length);
  let count = 0, number = 0, unit = 1;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes.charCodeAt(i);
    // Not by bits: weights have more than 32.
    number += (byte & 127) * unit;
    if (byte < 128) {
      numbers[count++] = number;
      number = 0;
      unit = 1;
    } else {
      unit *= 128;
    }
  }
  return numbers.subarray(0, count);
}

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

// A tree of calls in depth-first order: `end[n]` is the first node after those below n.
class Tree {
  constructor(count) {
    this.count = count;
    this.parent = new Int32Array(count);
    this.end = new Int32Array(count);
    this.depth = new Uint32Array(count);
    this.func = new Int32Array(count);
    this.total = new Float64Array(count);
    this.maxDepth = 0;
  }

  // Sets parents and ends from depths.
  connect() {
    const path = [];
    for (let n = 0; n < this.count; n++) {
      const depth = this.depth[n];
      while (path.length > depth) this.end[path.pop()] = n;
      this.parent[n] = depth > 0 ? path[depth - 1] : -1;
      path.push(n);
      if (depth > this.maxDepth) this.maxDepth = depth;
    }
    for (const n of path) this.end[n] = this.count;
  }
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
    this.eventOf = this.events_of_nodes();
    this.outermost = this.outermost_calls();
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

  // 1 for each call with no call of the same function above it: a recursive function counts once per
  // sample. A root is a command, not a function.
  outermost_calls() {
    const { tree } = this, flags = new Uint8Array(tree.count);
    const active = new Uint32Array(this.names.length), path = [];
    for (let n = 0; n < tree.count; n++) {
      while (path.length > tree.depth[n]) {
        const ended = path.pop();
        if (tree.depth[ended] > 0) active[tree.func[ended]]--;
      }
      path.push(n);
      if (tree.depth[n] === 0) continue;
      if (active[tree.func[n]]++ === 0) flags[n] = 1;
    }
    return flags;
  }

  // Returns the sums of the samples in a selection: by node and by function.
  sums({ event, from, to, tracks }) {
    const { tree, moments } = this;
    const own = new Sums(tree.count), all = new Sums(tree.count);
    const whole = { samples: 0, weight: 0, squares: 0 };
    for (let i = 0; i < moments.count; i++) {
      const n = moments.node[i], slice = moments.slice[i];
      if (this.eventOf[n] !== event || slice < from || slice >= to) continue;
      if (tracks.size > 0 && !tracks.has(moments.track[i])) continue;
      own.samples[n] += moments.samples[i];
      own.weight[n] += moments.weight[i];
      own.squares[n] += moments.squares[i];
    }
    for (const key of ['samples', 'weight', 'squares']) {
      const total = all[key];
      total.set(own[key]);
      // Parents come before their children.
      for (let n = tree.count - 1; n >= 0; n--) {
        if (tree.parent[n] >= 0) total[tree.parent[n]] += total[n];
        else whole[key] += total[n];
      }
    }
    const count = this.names.length;
    const self = new Sums(count), total = new Sums(count);
    for (let n = 0; n < tree.count; n++) {
      if (tree.depth[n] === 0) continue;
      self.add(tree.func[n], own, n);
      if (this.outermost[n]) total.add(tree.func[n], all, n);
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

// Samples, weight and sum of squared weights of a number of things.
class Sums {
  constructor(count) {
    this.samples = new Float64Array(count);
    this.weight = new Float64Array(count);
    this.squares = new Float64Array(count);
  }

  add(to, from, index) {
    this.samples[to] += from.samples[index];
    this.weight[to] += from.weight[index];
    this.squares[to] += from.squares[index];
  }

  at(index) {
    return { samples: this.samples[index], weight: this.weight[index], squares: this.squares[index] };
  }
}
