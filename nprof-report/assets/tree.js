// The data of pages: numbers as text, and trees of calls.

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

  // Returns 1 for each call with no call of the same function above it: a recursive function counts once per
  // sample. A root is no function.
  outermost(functions) {
    const { count, depth, func } = this, flags = new Uint8Array(count);
    const active = new Uint32Array(functions), path = [];
    for (let n = 0; n < count; n++) {
      while (path.length > depth[n]) {
        const ended = path.pop();
        if (depth[ended] > 0) active[func[ended]]--;
      }
      path.push(n);
      if (depth[n] === 0) continue;
      if (active[func[n]]++ === 0) flags[n] = 1;
    }
    return flags;
  }
}
