// The callers and the callees of a function, each merged into a tree.

// A tree of paths that are merged by their functions, and the nodes of the profile that each of its nodes sums.
class Merged {
  constructor(f) {
    this.func = [f];
    this.children = [new Map()];
    this.from = [];
    this.to = [];
  }

  child(parent, f) {
    let child = this.children[parent].get(f);
    if (child === undefined) {
      child = this.func.push(f) - 1;
      this.children.push(new Map());
      this.children[parent].set(f, child);
    }
    return child;
  }

  // Adds the samples of a node of the profile to those of a node.
  source(node, to) {
    this.from.push(node);
    this.to.push(to);
  }

  // Returns the tree in depth-first order, calls with the largest weights first. `sum` fills in its totals.
  finish(weights, sum) {
    const tree = new Tree(this.func.length), place = new Uint32Array(tree.count), pending = [[0, 0]];
    const totals = new Float64Array(tree.count);
    // New nodes come after their parents.
    this.from.forEach((node, index) => { totals[this.to[index]] += weights[node]; });
    let count = 0;
    while (pending.length > 0) {
      const [node, depth] = pending.pop(), n = count++;
      place[node] = n;
      tree.depth[n] = depth;
      tree.func[n] = this.func[node];
      const children = [...this.children[node].values()];
      children.sort((a, b) => totals[a] - totals[b] || b - a);
      for (const child of children) pending.push([child, depth + 1]);
    }
    tree.connect();
    const from = Uint32Array.from(this.from), to = Uint32Array.from(this.to, (node) => place[node]);
    tree.sum = (weights) => sum(tree, weights, from, to);
    return tree;
  }
}

// Returns the outermost calls of a function in an event.
function calls_of(profile, event, f) {
  const { tree, outermost } = profile, { first, end } = profile.of_event(event), calls = [];
  for (let n = first; n < end; n++) if (tree.func[n] === f && outermost[n]) calls.push(n);
  return calls;
}

// Returns the tree of the calls below a function: below its outermost call on each path.
function callees(profile, event, weights, f) {
  const { tree } = profile, merged = new Merged(f), place = [0];
  for (const n of calls_of(profile, event, f)) {
    merged.source(n, 0);
    for (let below = n + 1; below < tree.end[n]; below++) {
      const depth = tree.depth[below] - tree.depth[n];
      place[depth] = merged.child(place[depth - 1], tree.func[below]);
      merged.source(below, place[depth]);
    }
  }
  return merged.finish(weights, (tree, weights, from, to) => {
    tree.total.fill(0);
    for (let i = 0; i < from.length; i++) tree.total[to[i]] += weights[from[i]];
  });
}

// Returns the tree of the callers of a function: of its outermost call on each path.
function callers(profile, event, weights, f) {
  const { tree } = profile, merged = new Merged(f);
  for (const n of calls_of(profile, event, f)) {
    let place = 0;
    // The root is a command.
    for (let above = tree.parent[n]; above >= 0 && tree.depth[above] > 0; above = tree.parent[above]) {
      place = merged.child(place, tree.func[above]);
    }
    merged.source(n, place);
  }
  return merged.finish(weights, (tree, weights, from, to) => {
    tree.total.fill(0);
    for (let i = 0; i < from.length; i++) tree.total[to[i]] += weights[from[i]];
    // Each caller has the samples of the callers above it.
    for (let n = tree.count - 1; n > 0; n--) tree.total[tree.parent[n]] += tree.total[n];
  });
}
