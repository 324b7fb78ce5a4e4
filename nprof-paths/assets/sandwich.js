// The callers and the callees of a function, each merged into a tree.

// Grows a tree by paths, then returns it in depth-first order, heaviest calls first.
class Merger {
  constructor(f) {
    this.func = [f];
    this.total = [0];
    this.children = [new Map()];
  }

  child(parent, f) {
    let child = this.children[parent].get(f);
    if (child === undefined) {
      child = this.func.push(f) - 1;
      this.total.push(0);
      this.children.push(new Map());
      this.children[parent].set(f, child);
    }
    return child;
  }

  tree() {
    const tree = new Tree(this.func.length), pending = [[0, 0]];
    let count = 0;
    while (pending.length > 0) {
      const [node, depth] = pending.pop(), n = count++;
      tree.depth[n] = depth;
      tree.func[n] = this.func[node];
      tree.total[n] = this.total[node];
      const children = [...this.children[node].values()];
      children.sort((a, b) => this.total[a] - this.total[b] || b - a);
      for (const child of children) pending.push([child, depth + 1]);
    }
    tree.connect();
    return tree;
  }
}

// Returns the tree of the calls below a function: below its outermost call on each path.
function callees(profile, weights, f) {
  const { tree, outermost } = profile, merger = new Merger(f), place = [];
  for (let n = 0; n < tree.count; n++) {
    if (tree.func[n] !== f || !outermost[n] || !(weights[n] > 0)) continue;
    merger.total[0] += weights[n];
    place[0] = 0;
    for (let below = n + 1; below < tree.end[n]; below++) {
      if (!(weights[below] > 0)) continue;
      const depth = tree.depth[below] - tree.depth[n];
      place[depth] = merger.child(place[depth - 1], tree.func[below]);
      merger.total[place[depth]] += weights[below];
    }
  }
  return merger.tree();
}

// Returns the tree of the callers of a function: of its outermost call on each path.
function callers(profile, weights, f) {
  const { tree, outermost } = profile, merger = new Merger(f);
  for (let n = 0; n < tree.count; n++) {
    if (tree.func[n] !== f || !outermost[n] || !(weights[n] > 0)) continue;
    merger.total[0] += weights[n];
    let place = 0;
    // The root is a command.
    for (let above = tree.parent[n]; above >= 0 && tree.depth[above] > 0; above = tree.parent[above]) {
      place = merger.child(place, tree.func[above]);
      merger.total[place] += weights[n];
    }
  }
  return merger.tree();
}
