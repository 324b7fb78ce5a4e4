// Lines of code with numbers: a line can be chosen, and only the visible ones are in the document.

const LINE = 20;

class Listing {
  // `on` has `choose(index)` and `follow(index)`; columns are pairs of a class and a title.
  constructor(box, columns, on) {
    Object.assign(this, { box, on, lines: [], chosen: -1, isMarked: () => false });
    const head = add(box, 'div', 'head');
    for (const [className, title] of columns) add(head, 'div', 'cell ' + className, title);
    this.rows = add(box, 'div', 'rows');
    this.fill = add(this.rows, 'div', 'fill');
    this.rows.addEventListener('scroll', () => this.draw());
    this.rows.addEventListener('click', (event) => {
      const row = event.target.closest('.line');
      if (row) on.choose(+row.dataset.row);
    });
    box.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.rows);
  }

  // Shows lines: each is a function that adds the cells of a row.
  show(lines, isMarked) {
    Object.assign(this, { lines, isMarked });
    this.fill.style.height = lines.length * LINE + 'px';
    this.draw();
  }

  draw() {
    // A hidden list has no size.
    if (this.rows.clientHeight === 0) return;
    const first = Math.floor(this.rows.scrollTop / LINE);
    const last = Math.min(first + Math.ceil(this.rows.clientHeight / LINE) + 1, this.lines.length);
    this.fill.replaceChildren();
    for (let index = first; index < last; index++) {
      const isChosen = index === this.chosen;
      const row = add(this.fill, 'div', 'line' + (isChosen ? ' chosen' : this.isMarked(index) ? ' marked' : ''));
      row.style.top = index * LINE + 'px';
      row.dataset.row = index;
      row.setAttribute('role', 'option');
      row.setAttribute('aria-selected', isChosen);
      this.lines[index](row);
    }
  }

  // Chooses a line and scrolls to it; -1 for none.
  choose(index) {
    this.chosen = index;
    this.scroll_to(index);
    this.draw();
  }

  scroll_to(index) {
    const y = index * LINE, { scrollTop, clientHeight } = this.rows;
    if (index >= 0 && (y < scrollTop || y + LINE > scrollTop + clientHeight)) {
      this.rows.scrollTop = Math.max(y - clientHeight / 2, 0);
    }
  }

  key(event) {
    const page = Math.max(Math.floor(this.rows.clientHeight / LINE) - 1, 1), all = this.lines.length;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -all, End: all }[event.key];
    if (event.key === 'Enter' && this.chosen >= 0) this.on.follow?.(this.chosen);
    else if (step && all > 0) this.on.choose(Math.min(Math.max(this.chosen + step, 0), all - 1));
    else return;
    event.preventDefault();
  }
}
