// A flame graph on a canvas: roots at the top, or at the bottom for callers.

const ROW = 20;
const FONT = '12px ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';

class Flame {
  // `on` has `hover(n, event)`, `choose(n)` and `open(n)`.
  constructor(box, { isUpsideDown = false, on }) {
    this.box = box;
    this.canvas = box.querySelector('canvas');
    this.isUpsideDown = isUpsideDown;
    this.on = on;
    this.tree = null;
    this.zoomed = this.hovered = this.chosen = -1;
    this.canvas.addEventListener('mousemove', (event) => this.move(event));
    this.canvas.addEventListener('mouseleave', () => this.hover(-1));
    this.canvas.addEventListener('click', (event) => this.click(event));
    this.canvas.addEventListener('dblclick', (event) => this.open(event));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    box.addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.resize()).observe(box);
  }

  // Shows a tree; `isHit` is a flag for each function, or null without a search.
  show(tree, colors, label, isHit) {
    if (tree !== this.tree) this.zoomed = this.hovered = this.chosen = -1;
    Object.assign(this, { tree, colors, label, isHit });
    this.place();
    this.resize();
  }

  // Sets the left end of each node, in units of weight.
  place() {
    const { tree } = this;
    if (this.start?.length !== tree.count) [this.start, this.cursor] = [new Float64Array(tree.count), new Float64Array(tree.count)];
    const { start, cursor } = this;
    let roots = 0, depth = 0;
    for (let n = 0; n < tree.count; n++) {
      const parent = tree.parent[n];
      start[n] = parent < 0 ? roots : cursor[parent];
      if (parent < 0) roots += tree.total[n];
      else cursor[parent] += tree.total[n];
      cursor[n] = start[n];
      if (tree.total[n] > 0 && tree.depth[n] > depth) depth = tree.depth[n];
    }
    this.whole = roots;
    this.shownDepth = depth;
    if (this.zoomed >= 0 && !(tree.total[this.zoomed] > 0)) this.zoomed = -1;
  }

  // Returns the part that is shown, in units of weight.
  range() {
    const z = this.zoomed;
    return z < 0 ? [0, this.whole] : [this.start[z], this.start[z] + this.tree.total[z]];
  }

  resize() {
    // A hidden view has no size.
    if (!this.tree || this.box.clientWidth === 0) return;
    const width = this.box.clientWidth, height = Math.max(this.box.clientHeight, (this.shownDepth + 1) * ROW + 6);
    this.height = height;
    // The canvas covers the visible part only: a deep tree is higher than canvases may be.
    const seen = this.box.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!this.filler) this.filler = add(this.box, 'div', '');
    this.filler.style.height = Math.max(height - seen, 0) + 'px';
    Object.assign(this.canvas.style, { width: width + 'px', height: seen + 'px', position: 'sticky', top: '0' });
    // Setting a size clears the canvas, even to the same one.
    const [wide, high] = [Math.floor(width * ratio), Math.floor(seen * ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) [this.canvas.width, this.canvas.height] = [wide, high];
    this.ratio = ratio;
    if (this.isUpsideDown && !this.isScrolled) {
      this.box.scrollTop = height;
      this.isScrolled = height > seen;
    }
    this.draw();
  }

  // Returns the upper end of a row in the canvas, which shows the part from `scrolled` on.
  top(depth, scrolled) {
    const at = this.isUpsideDown ? this.height - (depth + 1) * ROW : depth * ROW;
    return at - scrolled;
  }

  draw() {
    if (!this.tree || this.box.clientWidth === 0) return;
    const { tree, start, colors, canvas } = this, context = canvas.getContext('2d');
    // Reading sizes of elements takes longer than drawing a call.
    const width = this.box.clientWidth, seen = this.box.clientHeight, scrolled = this.box.scrollTop;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = colors.back;
    context.fillRect(0, 0, width, seen);
    context.font = FONT;
    context.textBaseline = 'middle';
    this.letter ||= context.measureText('mmmmmmmmmm').width / 10;
    const [from, to] = this.range(), scale = width / Math.max(to - from, 1e-9);
    // The pixel up to which narrow calls are drawn, by depth: they are merged.
    const merged = new Float64Array(tree.maxDepth + 2).fill(-1);
    const marked = this.hovered >= 0 ? tree.func[this.hovered] : -1;
    for (let n = 0; n < tree.count;) {
      const left = (start[n] - from) * scale, right = left + tree.total[n] * scale;
      if (!(tree.total[n] > 0) || right <= 0 || left >= width) {
        n = tree.end[n];
        continue;
      }
      const depth = tree.depth[n], y = this.top(depth, scrolled);
      const isSeen = y + ROW > 0 && y < seen, f = tree.func[n];
      if (right - left < 1) {
        if (isSeen && right > merged[depth]) {
          const pixel = Math.max(Math.floor(left), merged[depth]);
          context.fillStyle = this.isHit && !this.isHit[f] ? colors.faint : colors.fill(tree, n);
          context.fillRect(pixel, y, 1, ROW - 1);
          merged[depth] = pixel + 1;
        }
        n = tree.end[n];
        continue;
      }
      if (isSeen) this.draw_call(context, n, Math.max(left, 0), Math.min(right, width), y, marked);
      n++;
    }
  }

  draw_call(context, n, left, right, y, marked) {
    const { tree, colors } = this, f = tree.func[n], isHit = this.isHit && this.isHit[f];
    const isAbove = this.zoomed >= 0 && n < this.zoomed && tree.end[n] > this.zoomed;
    context.fillStyle = isHit ? colors.hit : this.isHit ? colors.faint : colors.fill(tree, n);
    if (isAbove) context.globalAlpha = .55;
    const gap = right - left > 3 ? 1 : 0;
    context.fillRect(left, y, right - left - gap, ROW - 1);
    context.globalAlpha = 1;
    if (n === this.chosen || f === marked) {
      context.strokeStyle = n === this.chosen ? colors.accent : colors.edge;
      context.lineWidth = n === this.chosen ? 2 : 1;
      context.strokeRect(left + .5, y + .5, Math.max(right - left - gap - 1, 0), ROW - 2);
    }
    const letters = Math.floor((right - left - 8) / this.letter);
    if (letters < 2) return;
    let text = this.label(f);
    if (text.length > letters) text = text.slice(0, Math.max(letters - 1, 1)) + '…';
    context.fillStyle = this.isHit && !isHit ? colors.muted : colors.text;
    context.fillText(text, left + 4, y + ROW / 2);
  }

  // Returns the node under the pointer, or -1.
  at(event) {
    if (!this.tree) return -1;
    const box = this.canvas.getBoundingClientRect(), { tree, start } = this;
    const [from, to] = this.range(), unit = (to - from) / Math.max(box.width, 1);
    const x = from + (event.clientX - box.left) * unit, y = event.clientY - box.top + this.box.scrollTop;
    const depth = Math.floor((this.isUpsideDown ? this.height - y : y) / ROW);
    for (let n = 0; n < tree.count;) {
      const isInside = x >= start[n] && x < start[n] + tree.total[n];
      if (isInside && tree.depth[n] === depth) return tree.total[n] < unit ? -1 : n;
      n = isInside ? n + 1 : tree.end[n];
    }
    return -1;
  }

  move(event) {
    this.hover(this.at(event), event);
  }

  hover(n, event) {
    this.on.hover(this, n, event);
    if (n === this.hovered) return;
    this.hovered = n;
    this.canvas.style.cursor = n < 0 ? 'default' : 'pointer';
    this.draw();
  }

  click(event) {
    const n = this.at(event);
    this.chosen = n;
    // A click on the root, or beside all calls, shows everything.
    this.zoom(n >= 0 && this.tree.depth[n] > 0 ? n : -1);
    this.on.choose(this, n);
  }

  open(event) {
    const n = this.at(event);
    if (n >= 0 && this.tree.depth[n] > 0) this.on.open(this, n);
  }

  zoom(n) {
    this.zoomed = n;
    this.draw();
    this.on.zoom?.(this, n);
  }

  // Moves between calls: down and up, to heavier neighbours left and right.
  key(event) {
    const { tree } = this;
    if (!tree || tree.count === 0) return;
    const n = this.chosen;
    let next = n;
    const [down, up] = this.isUpsideDown ? ['ArrowUp', 'ArrowDown'] : ['ArrowDown', 'ArrowUp'];
    if (event.key === down) next = n < 0 ? 0 : this.heaviest_child(n);
    else if (event.key === up) next = n < 0 ? -1 : tree.parent[n];
    else if (event.key === 'ArrowRight') next = this.sibling(n, 1);
    else if (event.key === 'ArrowLeft') next = this.sibling(n, -1);
    else if (event.key === 'Enter' && n >= 0) this.zoom(tree.depth[n] > 0 ? n : -1);
    else if (event.key === 'Backspace') this.zoom(this.zoomed < 0 ? -1 : this.shallow(tree.parent[this.zoomed]));
    else return;
    event.preventDefault();
    if (next >= 0 && next !== n) {
      this.chosen = next;
      const y = this.top(tree.depth[next], this.box.scrollTop);
      if (y < 0 || y + ROW > this.box.clientHeight) this.box.scrollTop += y - this.box.clientHeight / 2;
      this.on.choose(this, next);
      this.draw();
    }
  }

  shallow(n) {
    return n >= 0 && this.tree.depth[n] > 0 ? n : -1;
  }

  heaviest_child(n) {
    const { tree } = this;
    let best = n;
    for (let child = n + 1; child < tree.end[n]; child = tree.end[child]) {
      if (best === n || tree.total[child] > tree.total[best]) best = child;
    }
    return tree.total[best] > 0 ? best : n;
  }

  sibling(n, step) {
    const { tree } = this;
    if (n < 0) return 0;
    const parent = tree.parent[n], end = parent < 0 ? tree.count : tree.end[parent];
    const siblings = [];
    for (let child = parent + 1; child < end; child = tree.end[child]) {
      if (tree.total[child] > 0) siblings.push(child);
    }
    return siblings[siblings.indexOf(n) + step] ?? n;
  }
}
