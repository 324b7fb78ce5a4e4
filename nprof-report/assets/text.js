// Numbers and names as text, and margins of error.

// Returns the margin of error of a share, as a fraction: the distance to the farther end of its Wilson
// score interval, as in nprof-flat.
function margin(part, whole, z) {
  const n = effective(part, whole);
  if (n === 0) return 1;
  const p = share(part, whole), z2 = z * z;
  const center = (p + z2 / (2 * n)) / (1 + z2 / n);
  const half = z / (1 + z2 / n) * Math.sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return Math.abs(center - p) + half;
}

// Returns the margin of error after a sign; nothing for estimates of another program, which have none.
function marginText(part, whole, z, sign) {
  return z === null ? '' : sign + percent(margin(part, whole, z));
}

function share(part, whole) {
  return whole.weight > 0 ? Math.min(part.weight / whole.weight, 1) : 0;
}

// Returns the number of samples of equal weight with the same sampling error.
function effective(part, whole) {
  const equal = (sum) => sum.squares > 0 ? Math.min(sum.weight * sum.weight / sum.squares, sum.samples) : 0;
  const ofWhole = equal(whole), p = share(part, whole);
  if (ofWhole === 0 || p === 0 || p === 1) return ofWhole;
  const rest = {
    samples: whole.samples - part.samples, weight: whole.weight - part.weight,
    squares: Math.max(whole.squares - part.squares, 0),
  };
  const variance = ((1 - p) ** 2 * part.squares + p * p * rest.squares) / whole.weight ** 2;
  const ofRow = p * (1 - p) / variance;
  if (ofRow <= ofWhole) return ofRow;
  const own = Math.min(equal(part), equal(rest));
  return Math.min(1 / ((own / ofRow + 4 / ofWhole) / (own + 4)), whole.samples);
}

function percent(fraction) {
  return decimals(100 * fraction);
}

// Returns the share of a part in per cent, as nprof-flat prints it.
function share_text(part, whole) {
  return decimals(whole.weight > 0 ? Math.min(100 * part.weight / whole.weight, 100) : 0);
}

// Returns a number that is not negative with two decimals. Of two equally near ones it takes the even one, as
// the tables do and toFixed does not.
function decimals(number) {
  const lower = Math.floor(100 * number), isMiddle = 8 * number % 2 === 1;
  return (isMiddle && lower % 2 === 0 ? lower / 100 : number).toFixed(2);
}

// Returns an amount in the unit of an event, with three digits.
function amount(value, unit) {
  const scaled = (step, names) => {
    let number = value, power = 0;
    // From here on, rounding would reach the next unit or one more digit.
    while (number >= step - .5 && power + 1 < names.length) [number, power] = [number / step, power + 1];
    return number.toFixed(power === 0 || number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2) + ' ' + names[power];
  };
  if (unit === 'ns') return scaled(1000, ['ns', 'µs', 'ms', 's']);
  if (unit === 'bytes' || unit === 'byte') return scaled(1024, ['B', 'KiB', 'MiB', 'GiB']);
  return Math.round(value).toLocaleString('en') + (unit && unit !== 'count' ? ' ' + unit : '');
}

function count(number) {
  return Math.round(number).toLocaleString('en');
}

function seconds(ns) {
  return (ns / 1e9).toFixed(ns < 1e8 ? 4 : ns < 1e10 ? 3 : 2) + ' s';
}

// Returns the name of a function without parameters, return type and arguments of templates, as flame graphs in SVG
// have it.
function short_name(name) {
  if (!/[<(]/.test(name) || name.includes('/') || name.includes('+0x')) return name;
  let short = '', depth = 0, isInstance = false, blank = 0, type = 0;
  for (let i = 0; i < name.length; i++) {
    const c = name[i];
    // The end is enough, and quick for long names.
    const isOperator = depth === 0 && (c === '(' ? /\boperator$/ : /\boperator<?$/).test(short.slice(-10));
    if ((c === '<' || c === '(') && !isOperator && !name.startsWith('(anonymous', i) && short !== '') {
      if (depth === 0 && c === '<') {
        isInstance = true;
        // Of Rust.
        if (short.endsWith('::')) short = short.slice(0, -2);
      }
      // The last blank before the parameters or an operator ends the return type.
      if (depth === 0 && c === '(') type ||= blank;
      depth++;
    } else if ((c === '>' || c === ')') && depth > 0) {
      depth--;
    } else if (depth === 0) {
      short += c;
      if (c === ' ' && !short.endsWith('(anonymous ')) blank = short.length;
      if (/\boperator$/.test(short.slice(-9))) type = blank;
    }
  }
  // Only instances of templates have a return type in their name.
  if (isInstance) short = short.slice(type);
  short = short.replace(/( const| volatile| &&?)+$/, '').trim();
  return depth === 0 && short !== '' ? short : name;
}

// Adds an element with text. Names of programs are outside data: they are never markup.
function add(parent, tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}
