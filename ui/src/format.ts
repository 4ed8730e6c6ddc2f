// Numbers, times and words for people.
const RELATIVE: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "m"],
  [1, "s"],
];

/** `3d`, `2h 5m`, `41s`: at most two units. */
export function span(seconds: number): string {
  let left = Math.max(0, Math.floor(seconds));
  const shown: string[] = [];
  for (const [size, unit] of RELATIVE) {
    const count = Math.floor(left / size);
    if (count > 0 || (size === 1 && !shown.length)) {
      shown.push(`${count}${unit}`);
      left -= count * size;
    }
    if (shown.length === 2 || (shown.length === 1 && size >= 86_400 && count >= 3)) break;
  }
  return shown.join(" ");
}

export function ago(time: string, now = Date.now()): string {
  const at = Date.parse(time);
  return Number.isNaN(at) ? "" : span((now - at) / 1000);
}

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" }); // making one takes longer than drawing a row

export function exact(time: string): string {
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? "" : moment.format(at);
}

export function count(value: number): string {
  return value.toLocaleString("en");
}

/** `1 XR`, `2 XRs`. */
export function many(value: number, word: string): string {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}

export function duration(seconds: number): string {
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  return seconds < 60 ? `${seconds.toFixed(2)} s` : span(seconds);
}

export function percent(part: number, whole: number): string {
  return whole ? `${Math.round((part * 100) / whole)} %` : "–";
}

/** The end of a long name, by which revisions differ. */
export function shortName(name: string): string {
  return name.length > 24 ? `${name.slice(0, 12)}…${name.slice(-8)}` : name;
}
