// The columns of the table of functions. `shown()` returns the sums of the selection, and the quantile of margins.
function function_columns({ names, images, image_of }, shown) {
  const by = (key, other) => (a, b) => {
    const { sums } = shown(), values = sums[key].weight, others = sums[other].weight;
    return values[b] - values[a] || others[b] - others[a] || a - b;
  };
  const by_samples = (a, b) => {
    const { self, total } = shown().sums;
    return self.samples[b] - self.samples[a] || total.samples[b] - total.samples[a] || a - b;
  };
  const by_image = (a, b) => {
    if (image_of[a] !== image_of[b]) return images[image_of[a]] < images[image_of[b]] ? -1 : 1;
    const { weight } = shown().sums.self;
    return weight[b] - weight[a] || a - b;
  };
  const draw_share = (key) => (cell, f) => {
    const { sums, z } = shown(), sum = sums[key].at(f);
    add(cell, 'i').style.width = 100 * share(sum, sums.whole) + '%';
    cell.append(share_text(sum, sums.whole));
    add(cell, 'small', '', marginText(sum, sums.whole, z, ''));
  };
  return [
    { key: 'self', label: 'Self %  ±', by: by('self', 'total'), draw: draw_share('self') },
    { key: 'total', label: 'Total %  ±', by: by('total', 'self'), draw: draw_share('total') },
    { key: 'samples', label: 'Samples', by: by_samples, draw: (cell, f) => cell.append(count(shown().sums.self.samples[f])) },
    { key: 'function', label: 'Function', sorted: 'ascending', by: (a, b) => a - b, draw: (cell, f) => draw_name(cell, names[f]) },
    { key: 'image', label: 'Image', sorted: 'ascending', by: by_image, draw: (cell, f) => cell.append(images[image_of[f]]) },
  ];
}
