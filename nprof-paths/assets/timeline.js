// The timeline: a row for each thread, with a brush that selects time, and labels that select threads.

const LABEL = 170;
const AXIS = 18;
const TRACK = 22;
const MAX_TRACKS = 300;

class Timeline {
  constructor(box, profile, on) {
    Object.assign(this, { box, profile, on });
    this.canvas = box.querySelector('canvas');
    this.from = 0;
    this.to = profile.slices;
    this.tracks = new Set();
    // The row of the keyboard.
    this.row = -1;
    this.canvas.addEventListener('mousedown', (event) => this.press(event));
    this.canvas.addEventListener('mousemove', (event) => this.hover(event));
    this.canvas.addEventListener('mouseleave', () => on.tip(null));
    this.canvas.addEventListener('dblclick', () => this.select(0, profile.slices));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.canvas.addEventListener('blur', () => this.choose_row(-1));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  show(event, colors) {
    this.colors = colors;
    if (this.event !== event) this.set_event(event);
    this.draw();
  }

  set_event(event) {
    const rows = this.profile.activity(event);
    this.event = event;
    this.row = -1;
    this.back = null;
    this.unit = this.profile.events[event].unit;
    this.isTime = this.unit === 'ns';
    const sum = (row) => row.reduce((a, b) => a + b, 0);
    this.order = rows.map((row, track) => ({ track, weight: sum(row) })).filter((row) => row.weight > 0)
      .sort((a, b) => b.weight - a.weight || a.track - b.track).slice(0, MAX_TRACKS);
    this.rows = rows;
    // Full height is a thread that runs all the time, or the largest number of an event of counts.
    this.full = this.profile.slice_ns;
    if (!this.isTime) this.full = this.order.reduce((max, row) => Math.max(max, ...rows[row.track]), 1);
  }

  get plot() { return Math.max(this.box.clientWidth - LABEL - 12, 10); }

  x(slice) { return LABEL + slice / this.profile.slices * this.plot; }

  draw() {
    if (!this.order) return;
    const { canvas, colors, profile, plot } = this, ratio = window.devicePixelRatio || 1;
    const width = this.box.clientWidth, height = AXIS + this.order.length * TRACK + 4;
    const look = [width, height, ratio, colors.dark, ...this.tracks].join();
    // A brush changes only what lies over the rows.
    if (!this.back || this.look !== look) this.draw_back(width, height, ratio);
    this.look = look;
    const context = canvas.getContext('2d');
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.back, 0, 0);
    if (this.row >= 0) {
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.strokeStyle = colors.accent;
      context.strokeRect(3.5, AXIS + this.row * TRACK + .5, LABEL - 8, TRACK - 2);
    }
    if (this.from === 0 && this.to === profile.slices) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colors.dark ? '#0009' : '#ffffffa8';
    context.fillRect(LABEL, AXIS, this.x(this.from) - LABEL, height);
    context.fillRect(this.x(this.to), AXIS, LABEL + plot - this.x(this.to), height);
    context.fillStyle = colors.accent;
    for (const slice of [this.from, this.to]) context.fillRect(this.x(slice) - 1, AXIS - 4, 2, height);
  }

  // Draws the axis and the rows of threads.
  draw_back(width, height, ratio) {
    const { canvas, colors } = this, back = this.back = document.createElement('canvas');
    Object.assign(canvas.style, { width: width + 'px', height: height + 'px' });
    for (const of of [canvas, back]) [of.width, of.height] = [width * ratio, height * ratio];
    const context = back.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colors.back;
    context.fillRect(0, 0, width, height);
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    this.draw_axis(context, height);
    this.order.forEach(({ track }, row) => this.draw_track(context, track, AXIS + row * TRACK));
  }

  draw_axis(context, height) {
    const { colors, profile } = this, length = profile.slices * profile.slice_ns / 1e9;
    const wanted = length / Math.max(this.plot / 110, 1), power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((tick) => tick >= wanted);
    for (let tick = 0; tick * step <= length * 1.0001; tick++) {
      const x = LABEL + tick * step / length * this.plot;
      context.fillStyle = colors.line;
      context.fillRect(Math.round(x), AXIS - 4, 1, height);
      context.fillStyle = colors.muted;
      const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
      context.fillText((tick * step).toFixed(digits) + ' s', x + 4, AXIS / 2 - 1);
    }
  }

  draw_track(context, track, y) {
    const { colors, profile, plot } = this, row = this.rows[track];
    const isOn = this.tracks.size === 0 || this.tracks.has(track);
    context.fillStyle = isOn ? colors.muted : colors.off;
    if (this.tracks.has(track)) context.fillStyle = colors.accent;
    // No more letters fit, and names can be long.
    let label = profile.tracks[track].slice(0, LABEL);
    while (label.length > 3 && context.measureText(label).width > LABEL - 20) label = label.slice(0, -2) + '…';
    context.fillText(label, 14, y + TRACK / 2);
    context.fillStyle = isOn ? colors.accent : colors.line;
    // A column of pixels shows the mean of its slices.
    for (let pixel = 0; pixel < plot; pixel++) {
      const first = pixel / plot * profile.slices, last = (pixel + 1) / plot * profile.slices;
      let sum = 0, slices = 0;
      for (let slice = Math.floor(first); slice < last && slice < profile.slices; slice++) {
        sum += row[slice];
        slices++;
      }
      const level = Math.min(sum / Math.max(slices, 1) / this.full, 1);
      if (level > 0) {
        const size = Math.max(level * (TRACK - 5), 1);
        context.fillRect(LABEL + pixel, y + TRACK - 2 - size, 1, size);
      }
    }
    context.fillStyle = colors.line;
    context.fillRect(LABEL, y + TRACK - 2, plot, 1);
  }

  slice_at(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    return Math.min(Math.max((x - LABEL) / this.plot * this.profile.slices, 0), this.profile.slices);
  }

  track_at(event) {
    const y = event.clientY - this.canvas.getBoundingClientRect().top;
    return this.order[Math.floor((y - AXIS) / TRACK)]?.track;
  }

  press(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    if (x < LABEL) return this.choose_track(this.track_at(event), event);
    const start = this.slice_at(event);
    const move = (event) => {
      const at = this.slice_at(event);
      if (Math.abs(at - start) / this.profile.slices * this.plot < 3) return;
      this.select(Math.floor(Math.min(at, start)), Math.ceil(Math.max(at, start)));
    };
    const release = () => {
      removeEventListener('mousemove', move);
      removeEventListener('mouseup', release);
      this.isMoving = false;
      this.on.change();
    };
    this.isMoving = true;
    addEventListener('mousemove', move);
    addEventListener('mouseup', release);
    event.preventDefault();
  }

  // Selects a thread, with a modifier beside others; or no longer, if it is selected.
  choose_track(track, event) {
    if (track === undefined) return;
    if (!(event.ctrlKey || event.shiftKey || event.metaKey) && !this.tracks.has(track)) this.tracks.clear();
    if (!this.tracks.delete(track)) this.tracks.add(track);
    this.on.change();
  }

  // Moves the selected time with left and right, its end with Shift; the row with up and down.
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step) this.move_time(step, event.shiftKey);
    else if (move) this.choose_row(Math.min(Math.max(this.row + move, 0), this.order.length - 1));
    else if (event.key === 'Enter' || event.key === ' ') this.choose_track(this.order[this.row]?.track, event);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  move_time(step, isLength) {
    const { slices } = this.profile, { from, to } = this, tenth = Math.max(Math.round(slices / 10), 1);
    // Without a selection, the tenth at an end.
    if (from === 0 && to === slices) return step > 0 ? this.select(0, tenth) : this.select(slices - tenth, slices);
    const by = step * Math.max(Math.round(slices / 100), 1);
    if (isLength) return this.select(from, Math.min(Math.max(to + by, from + 1), slices));
    const shift = Math.min(Math.max(by, -from), slices - to);
    this.select(from + shift, to + shift);
  }

  choose_row(row) {
    this.row = row;
    const y = AXIS + row * TRACK;
    if (row >= 0 && (y < this.box.scrollTop || y + TRACK > this.box.scrollTop + this.box.clientHeight)) this.box.scrollTop = y - TRACK;
    this.draw();
  }

  // Selects a part of the time, in slices.
  select(from, to) {
    if (from === this.from && to === this.to) return;
    [this.from, this.to] = [from, to];
    this.on.change();
  }

  hover(event) {
    const track = this.track_at(event), slice = Math.floor(this.slice_at(event));
    if (track === undefined || slice >= this.profile.slices) return this.on.tip(null);
    const value = this.rows[track][slice];
    const used = this.isTime ? (100 * value / this.full).toFixed(0) + ' %' : amount(value, this.unit);
    this.on.tip(event, this.profile.tracks[track], `at ${seconds(slice * this.profile.slice_ns)}: ${used}`);
  }
}
