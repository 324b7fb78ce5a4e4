// Colours of functions: a hue for each image, the heaviest images first, and a brightness for each name.

const HUES = [28, 210, 150, 340, 262, 190, 52, 8, 120, 300, 232, 80];

class Colors extends Palette {
  constructor(profile, sums) {
    super();
    const weights = profile.images.map((name, image) => ({ image, weight: 0 }));
    for (let f = 0; f < profile.names.length; f++) weights[profile.image_of[f]].weight += sums.self.weight[f];
    weights.sort((a, b) => b.weight - a.weight || a.image - b.image);
    this.hueOf = new Float64Array(profile.images.length);
    weights.forEach(({ image }, rank) => { this.hueOf[image] = HUES[rank % HUES.length]; });
    this.profile = profile;
    this.fills = [];
  }

  set_dark(dark) {
    super.set_dark(dark);
    this.fills = [];
  }

  // Returns the colour of a call: that of its function, grey for marks, which are no code.
  fill(tree, n) {
    const f = tree.func[n];
    if (this.fills[f]) return this.fills[f];
    const name = this.profile.names[f], image = this.profile.image_of[f];
    let hash = 0;
    for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) | 0;
    const step = ((hash >>> 3) % 7) - 3, hue = this.hueOf[image] + ((hash >>> 8) % 13) - 6;
    const isMark = name.startsWith('[') || name.startsWith('(other');
    const [saturation, light] = this.dark ? [42, 36 + step * 1.6] : [72, 78 + step * 1.8];
    return this.fills[f] = `hsl(${hue} ${isMark ? 0 : saturation}% ${light}%)`;
  }
}
