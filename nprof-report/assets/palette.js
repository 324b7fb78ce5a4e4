// Colours that all pages share. A subclass has `fill(tree, n)`, the colour of a call.

class Palette {
  dark = false;

  set_dark(dark) {
    this.dark = dark;
  }

  get text() { return this.dark ? '#f2f4f7' : '#1c2128'; }
  get faint() { return this.dark ? '#2b3038' : '#e7eaee'; }
  get back() { return this.dark ? '#15181d' : '#ffffff'; }
  get edge() { return this.dark ? '#ffffff' : '#111111'; }
  get hit() { return this.dark ? '#c2409f' : '#f5a3ec'; }
  get muted() { return this.dark ? '#8e97a3' : '#68717d'; }
  get accent() { return this.dark ? '#6ea0ff' : '#2563eb'; }
  get off() { return this.dark ? '#59616c' : '#b4bbc4'; }
  get line() { return this.dark ? '#2d333c' : '#dfe3e8'; }
}
