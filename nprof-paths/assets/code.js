// Source lines and instructions of a function, with their samples.

// The functions with code: of each, the offsets, texts, places and jumps of its instructions.
class Code {
  constructor(data, profile) {
    Object.assign(this, data);
    this.count = 0;
    for (const found of this.functions) {
      const numbers = decoded(found.rows), count = numbers.length / 4;
      Object.assign(found, { first: this.count, count, offsets: [], texts: [], at: [], targets: [] });
      for (let row = 0, offset = 0; row < count; row++) {
        offset += numbers[4 * row];
        found.offsets.push(offset);
        found.texts.push(numbers[4 * row + 1]);
        found.at.push(numbers[4 * row + 2]);
        found.targets.push(numbers[4 * row + 3] - 1);
      }
      this.count += count;
    }
    this.samples = this.moments.map((text, event) =>
      decoded_moments(decoded(text), () => profile.events[event].each));
    // The selected time in slices of the code, which may be longer.
    this.steps = Math.max(Math.round(this.slice_ns / profile.slice_ns), 1);
    this.profile = profile;
    this.found = new Map();
    this.flags = new Map();
    // For each event, whether it has samples of threads that were joined: they have no row in the timeline.
    this.isJoined = this.samples.map(({ track }) => track.some((number) => number >= profile.tracks.length));
  }

  // Returns the number of a function in the page; -1 if its calls are in `(other)`.
  number_of(found) {
    const { names, images, image_of } = this.profile, name = this.words[found.name], image = this.words[found.image];
    return names.findIndex((other, f) => other === name && images[image_of[f]] === image);
  }

  // Returns the functions that were compiled from a function: its own code, then those it is inlined in.
  of(f) {
    if (this.found.has(f)) return this.found.get(f);
    const { names, images, image_of } = this.profile, image = images[image_of[f]], name = this.words.indexOf(names[f]);
    const isOwn = (code) => code.name === name, has = this.places_of(name);
    const found = name < 0 ? [] : this.functions.filter((code) =>
      this.words[code.image] === image && (isOwn(code) || code.at.some((place) => has[place])));
    found.sort((a, b) => isOwn(b) - isOwn(a));
    this.found.set(f, found);
    return found;
  }

  // Returns a flag for each place, 1 if a name is that of one of its calls.
  places_of(name) {
    if (!this.flags.has(name)) this.flags.set(name, Uint8Array.from(this.places, (place) => names_in(place).includes(name) ? 1 : 0));
    return this.flags.get(name);
  }

  // Returns for each instruction of a function the line of that function: of calls that were inlined, that of the
  // outermost.
  lines_of(found) {
    const line = (place) => place.length > 0 ? place.slice(-2).join(':') : '0:0';
    return found.lines ??= found.at.map((place) => line(this.places[place]));
  }

  // Returns the sums of all instructions in a selection.
  sums({ event, from, to, tracks }) {
    const sums = new Sums(this.count), moments = this.samples[event];
    const first = Math.floor(from / this.steps), end = Math.ceil(to / this.steps);
    for (let i = 0; i < (moments?.count ?? 0); i++) {
      const slice = moments.slice[i];
      if (slice >= first && slice < end && (tracks.size === 0 || tracks.has(moments.track[i]))) {
        sums.add(moments.node[i], moments, i);
      }
    }
    return sums;
  }
}

// Returns the numbers of the functions at a place, innermost first; -1 for unknown ones.
function names_in(place) {
  return place.filter((number, index) => index % 3 === 0).map((number) => number - 1);
}

class CodeView {
  // `on` has `choose(f)`.
  constructor(section, profile, on) {
    this.code = profile.code && new Code(profile.code, profile);
    Object.assign(this, { profile, on, shown: null, func: -1, line: null });
    const part = (name) => section.querySelector('#code-' + name);
    this.list = part('function');
    this.place = part('place');
    this.note = part('note');
    const numbers = [['c-self', 'Self %  ±'], ['c-samples', 'Samples']];
    this.lines = new Listing(part('lines'), [...numbers, ['c-inlined', 'Inlined'], ['c-line', 'Line'], ['c-text', 'Source']], {
      choose: (index) => this.choose_line(index),
      follow: () => part('instructions').focus(),
    });
    this.instructions = new Listing(part('instructions'), [...numbers, ['c-address', 'Address'], ['c-text', 'Instruction'], ['c-line', 'Line'], ['c-function', 'Function']], {
      choose: (index) => this.choose_instruction(index),
      follow: (index) => this.jump(index),
    });
    this.list.addEventListener('change', () => {
      const found = this.code.functions[this.list.value];
      // Several functions may have one name: the chosen one stays open.
      this.func = this.code.number_of(found);
      this.open(found);
      this.on.choose(this.func);
    });
  }

  // True if a function has code.
  has(f) { return this.code !== null && f >= 0 && this.code.of(f).length > 0; }

  // Shows the code of a function, or of the one with the most samples if `f` is negative.
  show(f, sums, selection, isMoving) {
    if (!this.code) return;
    const { event } = selection;
    Object.assign(this, { whole: sums.whole, z: this.profile.events[event].z, sums: this.code.sums(selection) });
    // A list that changes under the brush is of no use.
    if (!isMoving || !this.ordered) this.show_list();
    const last = this.shown && this.func === f ? this.shown : this.ordered[0];
    // The brush must not go to another function.
    const found = f >= 0 ? this.code.of(f) : last ? [last] : [];
    if (!found.includes(this.shown) || this.func !== f) {
      this.func = f;
      this.line = null;
      this.open(found[0] ?? null);
    } else {
      this.draw();
    }
    this.note.textContent = this.notes(f, found, selection).join(' ');
  }

  notes(f, found, { event, from, to, tracks }) {
    const { code, profile } = this, notes = [];
    const name = f >= 0 ? profile.names[f] : '', { steps } = code;
    if (found.length === 0) {
      notes.push(`${name || 'This recording'}: no code here. The page has the code of functions with 0.1 % of the samples or more, as far as the stream has it.`);
    } else if (f >= 0 && code.words[this.shown.name] !== name) {
      notes.push(`${name} is inlined here, at the marked instructions` + (found.length > 1 ? `, and in ${found.length - 1} more functions with code.` : '.'));
    }
    if (code.without_room > 0) notes.push(`${code.without_room} functions with fewer samples have no room in the page; nprof-annotate prints them.`);
    const isWhole = from === 0 && to === profile.slices;
    if (!isWhole && (from % steps > 0 || to % steps > 0 && to < profile.slices)) {
      const time = (slice) => seconds(Math.min(slice * steps, profile.slices) * profile.slice_ns);
      notes.push(`Code has time in steps of ${seconds(code.slice_ns)}: these numbers are of ${time(Math.floor(from / steps))} – ${time(Math.ceil(to / steps))}.`);
    }
    if (tracks.size > 0 && code.isJoined[event]) {
      notes.push('Threads with few samples at instructions were joined: their samples are only in the numbers of all threads.');
    }
    return notes.concat(code.notes);
  }

  // Fills the list of functions, those with the most samples first.
  show_list() {
    const { functions, words } = this.code, total = (found) => sum_of(this.sums, found.first, found.first + found.count);
    const totals = new Map(functions.map((found) => [found, total(found)]));
    this.totals = totals;
    this.ordered = functions.filter((found) => totals.get(found).samples > 0)
      .sort((a, b) => totals.get(b).weight - totals.get(a).weight || a.first - b.first);
    this.list.replaceChildren();
    for (const found of this.ordered) {
      const text = `${share_text(totals.get(found), this.whole)} %  ${words[found.name]}`;
      add(this.list, 'option', '', text).value = functions.indexOf(found);
    }
  }

  // Opens the code of a function at its instruction with the most samples.
  open(found) {
    this.shown = found;
    this.line = null;
    this.instructions.chosen = this.lines.chosen = -1;
    this.draw();
    if (!found) return;
    let best = 0;
    for (let row = 0; row < found.count; row++) {
      if (this.sums.weight[found.first + row] > this.sums.weight[found.first + best]) best = row;
    }
    this.instructions.scroll_to(best);
    this.lines.scroll_to(this.line_of.get(this.key(best)));
  }

  draw() {
    const { shown, code } = this;
    this.list.value = shown ? code.functions.indexOf(shown) : '';
    this.place.textContent = this.place.title = shown ? `${code.words[shown.path]}+0x${shown.start}` : '';
    this.keys = [];
    this.line_of = new Map();
    if (!shown) {
      this.lines.show([], () => false);
      return this.instructions.show([], () => false);
    }
    const name = this.func < 0 ? -1 : code.words.indexOf(this.profile.names[this.func]);
    const isInlined = name !== shown.name, has = code.places_of(name);
    const rows = Array.from({ length: shown.count }, (_, row) => (element) => this.draw_instruction(element, row));
    this.instructions.show(rows, (row) => this.line === null ? isInlined && has[shown.at[row]] : this.key(row) === this.line);
    this.show_lines();
  }

  // Returns the line at an instruction.
  key(row) {
    return this.code.lines_of(this.shown)[row];
  }

  show_lines() {
    const { shown, code } = this, found = new Map();
    for (let row = 0; row < shown.count; row++) {
      const key = this.key(row), [file, number] = key.split(':').map(Number);
      if (!found.has(key)) found.set(key, { key, file, number, text: '', sum: new Sums(1), inlined: 0 });
      const line = found.get(key), at = shown.first + row;
      line.sum.add(0, this.sums, at);
      if (code.places[shown.at[row]].length > 3) line.inlined += this.sums.samples[at];
    }
    for (const [word, first, texts] of shown.source) {
      texts.forEach((text, index) => {
        const number = first + index, file = word + 1, key = `${file}:${number}`;
        if (!found.has(key)) found.set(key, { key, file, number, sum: null, inlined: 0 });
        found.get(key).text = text;
      });
    }
    const path = (line) => line.file > 0 ? code.words[line.file - 1] : '';
    const lines = [...found.values()].sort((a, b) =>
      path(a) < path(b) ? -1 : path(a) > path(b) ? 1 : a.number - b.number);
    this.keys = lines.map((line) => line.key);
    lines.forEach((line, index) => this.line_of.set(line.key, index));
    this.lines.chosen = this.line === null ? -1 : this.line_of.get(this.line) ?? -1;
    const rows = lines.map((line) => (element) => this.draw_line(element, line, path(line)));
    this.lines.show(rows, () => false);
  }

  draw_numbers(element, sum) {
    const cell = add(element, 'div', 'cell c-self');
    if (sum.samples > 0) {
      add(cell, 'i').style.width = 100 * share(sum, this.whole) + '%';
      cell.append(share_text(sum, this.whole));
      add(cell, 'small', '', marginText(sum, this.whole, this.z, ''));
    }
    add(element, 'div', 'cell c-samples', sum.samples > 0 ? count(sum.samples) : '');
  }

  draw_line(element, line, path) {
    this.draw_numbers(element, line.sum ? line.sum.at(0) : { samples: 0 });
    add(element, 'div', 'cell c-inlined', line.inlined > 0 ? count(line.inlined) : '');
    add(element, 'div', 'cell c-line', line_text(path, line.number)).title = path;
    add(element, 'div', 'cell c-text mono', line.text);
  }

  draw_instruction(element, row) {
    const { shown, code } = this, place = code.places[shown.at[row]];
    const word = (number) => number > 0 ? code.words[number - 1] : '';
    this.draw_numbers(element, this.sums.at(shown.first + row));
    const address = BigInt('0x' + shown.start) + BigInt(shown.offsets[row]);
    add(element, 'div', 'cell c-address mono', '0x' + BigInt.asUintN(64, address).toString(16));
    add(element, 'div', 'cell c-text mono', code.words[shown.texts[row]]).title = code.words[shown.texts[row]];
    const path = word(place[1] ?? 0);
    add(element, 'div', 'cell c-line', line_text(path, place[2] ?? 0)).title = path;
    // The function is that of the page unless a call was inlined.
    add(element, 'div', 'cell c-function', place.length > 3 ? word(place[0]) : '');
  }

  choose_line(index) {
    this.line = this.keys[index];
    this.lines.choose(index);
    this.instructions.chosen = -1;
    let best = -1;
    for (let row = 0; row < this.shown.count; row++) {
      const isHeavier = best < 0 || this.sums.weight[this.shown.first + row] > this.sums.weight[this.shown.first + best];
      if (this.key(row) === this.line && isHeavier) best = row;
    }
    this.instructions.scroll_to(best);
    this.instructions.draw();
  }

  choose_instruction(row) {
    this.line = this.key(row);
    this.instructions.choose(row);
    this.lines.choose(this.line_of.get(this.line));
  }

  // Goes to the target of a jump.
  jump(row) {
    const target = this.shown.offsets.indexOf(this.shown.targets[row]);
    if (this.shown.targets[row] >= 0 && target >= 0) this.choose_instruction(target);
  }
}

// Returns the sum of a range of sums.
function sum_of(sums, first, end) {
  const sum = new Sums(1);
  for (let index = first; index < end; index++) sum.add(0, sums, index);
  return sum.at(0);
}

function line_text(path, line) {
  if (path === '') return '';
  const name = path.slice(path.lastIndexOf('/') + 1);
  return line > 0 ? `${name}:${line}` : name;
}
