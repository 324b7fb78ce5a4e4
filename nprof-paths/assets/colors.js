// Colours of functions: a hue for each image, the heaviest images first, and a brightness for each name.

const HUES = [28, 210, 150, 340, 262, 190, 52, 8, 120, 300, 232, 80];

class Colors {
  constructor(profile, sums) {
    const weights = profile.images.map((name, image) => ({ image, weight: 0 }));
    for (let f = 0; f < profile.names.length; f++) weights[profile.image_of[f]].weight += sums.self.weight[f];
    weights.sort((a, b) => b.weight - a.weight || a.image - b.image);
    this.hueOf = new Float64Array(profile.images.length);
    weights.forEach(({ image }, rank) => { this.hueOf[image] = HUES[rank % HUES.length]; });
    this.profile = profile;
    this.dark = false;
    this.fills = [];
  }

  set_dark(dark) {
    this.dark = dark;
    this.fills = [];
  }

  // Returns the colour of a function; grey for marks, which are no code.
  fill(f) {
    if (this.fills[f]) return this.fills[f];
    const name = this.profile.names[f], image = this.profile.image_of[f];
    let hash = 0;
    for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) | 0;
    const step = ((hash >>> 3) % 7) - 3, hue = this.hueOf[image] + ((hash >>> 8) % 13) - 6;
    const isMark = name.startsWith('[') || name.startsWith('(other');
    const [saturation, light] = this.dark ? [42, 36 + step * 1.6] : [72, 78 + step * 1.8];
    return this.fills[f] = `hsl(${hue} ${isMark ? 0 : saturation}% ${light}%)`;
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
