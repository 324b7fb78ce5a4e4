// The table of functions: sorted by a column, with only the visible rows in the document.

const HEIGHT = 24;
const COLUMNS = [
  ['self', 'Self %  ±', 'self.weight'], ['total', 'Total %  ±', 'total.weight'],
  ['samples', 'Samples', 'self.samples'], ['function', 'Function', 'name'], ['image', 'Image', 'image'],
];

class Table {
  constructor(box, profile, on) {
    Object.assign(this, { box, profile, on });
    this.head = box.querySelector('.head');
    this.rows = box.querySelector('.rows');
    this.fill = box.querySelector('.fill');
    this.order = [];
    this.sort = 'self';
    this.chosen = -1;
    for (const [key, label] of COLUMNS) {
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

  // Shows sums; `isHit` is a flag for each function, or null without a search.
  show(sums, z, isHit) {
    Object.assign(this, { sums, z, isHit });
    this.arrange();
  }

  arrange() {
    const { self, total } = this.sums, { names, images, image_of } = this.profile;
    this.order = [];
    for (let f = 0; f < names.length; f++) {
      if (total.samples[f] > 0 && (!this.isHit || this.isHit[f])) this.order.push(f);
    }
    const by = (values, others) => (a, b) => values[b] - values[a] || others[b] - others[a] || a - b;
    this.order.sort({
      self: by(self.weight, total.weight), total: by(total.weight, self.weight),
      samples: by(self.samples, total.samples), function: (a, b) => a - b,
      image: (a, b) => image_of[a] === image_of[b] ? self.weight[b] - self.weight[a] || a - b
        : images[image_of[a]] < images[image_of[b]] ? -1 : 1,
    }[this.sort]);
    for (const button of this.head.querySelectorAll('button')) {
      if (button.dataset.key === this.sort) button.setAttribute('aria-sort', 'descending');
      else button.removeAttribute('aria-sort');
    }
    this.fill.style.height = this.order.length * HEIGHT + 'px';
    this.draw();
  }

  draw() {
    if (!this.sums) return;
    const first = Math.floor(this.rows.scrollTop / HEIGHT);
    const last = Math.min(first + Math.ceil(this.rows.clientHeight / HEIGHT) + 1, this.order.length);
    this.fill.replaceChildren();
    for (let row = first; row < last; row++) this.draw_row(row);
  }

  draw_row(row) {
    const f = this.order[row], { self, total, whole } = this.sums, { names, images, image_of } = this.profile;
    const element = add(this.fill, 'div', f === this.chosen ? 'row chosen' : 'row');
    element.style.top = row * HEIGHT + 'px';
    element.dataset.row = row;
    for (const [className, sum] of [['c-self', self.at(f)], ['c-total', total.at(f)]]) {
      const cell = add(element, 'div', 'cell ' + className);
      const part = share(sum, whole);
      const bar = add(cell, 'i');
      bar.style.width = 100 * part + '%';
      cell.append(percent(part));
      add(cell, 'small', '', marginText(sum, whole, this.z, ''));
    }
    add(element, 'div', 'cell c-samples', count(self.samples[f]));
    add(element, 'div', 'cell c-function mono', names[f]);
    add(element, 'div', 'cell c-image', images[image_of[f]]);
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
