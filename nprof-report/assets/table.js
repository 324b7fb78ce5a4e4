// The table of functions: sorted by a column, with only the visible rows in the document.

const HEIGHT = 24;
class Table {
  // A column has a key, a label, an order `by(a, b)` of functions, `sorted`, its value of aria-sort, if that is
  // not descending, and `draw(cell, f)`. `on` has `choose(f)`,
  // `open(f)` and `hover(f, event)`.
  constructor(box, columns, on) {
    Object.assign(this, { box, columns, on });
    this.head = box.querySelector('.head');
    this.rows = box.querySelector('.rows');
    this.fill = box.querySelector('.fill');
    this.order = [];
    this.sort = columns[0].key;
    this.chosen = -1;
    for (const { key, label } of columns) {
      const button = add(add(this.head, 'div', 'cell c-' + key), 'button', '', label);
      button.addEventListener('click', () => {
        this.sort = key;
        this.arrange();
      });
      button.dataset.key = key;
    }
    this.rows.addEventListener('scroll', () => this.draw());
    this.rows.addEventListener('click', (event) => this.click(event));
    this.rows.addEventListener('dblclick', () => this.chosen >= 0 && on.open(this.chosen));
    this.rows.addEventListener('mousemove', (event) => this.hover(event));
    this.rows.addEventListener('mouseleave', () => on.hover(-1));
    box.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.rows);
  }

  // Shows functions.
  show(functions) {
    this.order = functions;
    this.arrange();
  }

  arrange() {
    const { by, sorted = 'descending' } = this.columns.find(({ key }) => key === this.sort);
    this.order.sort(by);
    for (const button of this.head.querySelectorAll('button')) {
      if (button.dataset.key === this.sort) button.setAttribute('aria-sort', sorted);
      else button.removeAttribute('aria-sort');
    }
    this.fill.style.height = this.order.length * HEIGHT + 'px';
    this.draw();
  }

  draw() {
    const first = Math.floor(this.rows.scrollTop / HEIGHT);
    const last = Math.min(first + Math.ceil(this.rows.clientHeight / HEIGHT) + 1, this.order.length);
    this.fill.replaceChildren();
    for (let row = first; row < last; row++) this.draw_row(row);
  }

  draw_row(row) {
    const f = this.order[row], element = add(this.fill, 'div', f === this.chosen ? 'row chosen' : 'row');
    element.style.top = row * HEIGHT + 'px';
    element.dataset.row = row;
    for (const { key, draw } of this.columns) draw(add(element, 'div', 'cell c-' + key), f);
  }

  // Chooses a function and scrolls to it.
  choose(f) {
    this.chosen = f;
    const row = this.order.indexOf(f), y = row * HEIGHT;
    const { scrollTop, clientHeight } = this.rows;
    if (row >= 0 && (y < scrollTop || y + HEIGHT > scrollTop + clientHeight)) {
      this.rows.scrollTop = Math.max(y - clientHeight / 2, 0);
    }
    this.draw();
  }

  click(event) {
    const row = event.target.closest('.row');
    if (row) this.on.choose(this.order[row.dataset.row]);
  }

  hover(event) {
    const row = event.target.closest('.row');
    this.on.hover(row ? this.order[row.dataset.row] : -1, event);
  }

  key(event) {
    if (event.key === 'Enter' && this.chosen >= 0) {
      this.on.open(this.chosen);
      return event.preventDefault();
    }
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
    if (!step || this.order.length === 0) return;
    const row = this.order.indexOf(this.chosen) + step;
    this.on.choose(this.order[Math.min(Math.max(row, 0), this.order.length - 1)]);
    event.preventDefault();
  }
}
