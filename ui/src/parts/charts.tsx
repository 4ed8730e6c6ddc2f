// Pictures, each with the same in words for those who do not see it.
import { exact } from "../format";
import type { RevisionUsage } from "../types";

const W = 800;
const H = 190;
const LEFT = 38;
const BOTTOM = 20;

export function colour(index: number, total: number): number {
  // The newest has the accent; older ones follow.
  return Math.min(total - 1 - index, 5) + 1;
}

export function StackedArea({ population, names }: { population: RevisionUsage; names: (revision: string) => string }) {
  const { samples, revisions } = population;
  const times = samples.map((sample) => Date.parse(sample.time));
  const begin = times[0] ?? 0;
  const end = Math.max(times[times.length - 1] ?? 1, begin + 1000);
  const top = Math.max(1, ...samples.map((sample) => sample.counts.reduce((sum, each) => sum + each, 0)));
  const x = (time: number) => LEFT + ((time - begin) / (end - begin)) * (W - LEFT - 8);
  const y = (value: number) => H - BOTTOM - (value / top) * (H - BOTTOM - 10);
  const layers = revisions.map((revision, layer) => {
    const upper: string[] = [];
    const lower: string[] = [];
    samples.forEach((sample, index) => {
      const below = sample.counts.slice(0, layer).reduce((sum, each) => sum + each, 0);
      const here = below + (sample.counts[layer] ?? 0);
      const until = times[index + 1] ?? times[index]!; // a population stays as it is until the next sample
      upper.push(`${x(times[index]!)},${y(here)} ${x(until)},${y(here)}`);
      lower.unshift(`${x(until)},${y(below)} ${x(times[index]!)},${y(below)}`);
    });
    return { revision, points: [...upper, ...lower].join(" ") };
  });
  const now = samples[samples.length - 1];
  const words = revisions.map((revision, index) => `${names(revision)}: ${now?.counts[index] ?? 0}`).join(", ");
  const ticks = [...new Set([0, Math.round(top / 2), top])];
  return (
    <svg class="chart" viewBox={`0 0 ${W} ${H}`} role="img" aria-label={`XRs on each revision over time; now ${words}`}>
      {ticks.map((tick) => (
        <g key={tick}>
          <line class="axis" x1={LEFT} x2={W - 8} y1={y(tick)} y2={y(tick)} />
          <text x={LEFT - 7} y={y(tick) + 4} text-anchor="end">{tick}</text>
        </g>
      ))}
      {layers.map((layer, index) => (
        <polygon key={layer.revision} class={`f${colour(index, revisions.length)}`} points={layer.points} opacity="0.9">
          <title>{names(layer.revision)}</title>
        </polygon>
      ))}
      <text x={LEFT} y={H - 4}>{exact(samples[0]?.time ?? "").replace(/ [A-Z]{2,4}[+\d]*$/, "")}</text>
      <text x={W - 8} y={H - 4} text-anchor="end">now</text>
    </svg>
  );
}

export function Spark({ series, threshold }: { series: number[]; threshold: number | null }) {
  if (series.length < 2) return null;
  const values = threshold === null ? series : [...series, threshold];
  const low = Math.min(...values);
  const high = Math.max(...values, low + 1e-9);
  const y = (value: number) => 23 - ((value - low) / (high - low)) * 20;
  const points = series.map((value, index) => `${(index / (series.length - 1)) * 116 + 2} ${y(value)}`);
  return (
    <svg class="spark" viewBox="0 0 120 26" role="img" aria-label={`Measured from ${series[0]} to ${series[series.length - 1]}${threshold === null ? "" : `, threshold ${threshold}`}`}>
      {threshold !== null && <line x1="0" x2="120" y1={y(threshold)} y2={y(threshold)} />}
      <path d={`M${points.join("L")}`} />
    </svg>
  );
}

export interface Tile {
  name: string;
  size: number;
  x: number;
  y: number;
  w: number;
  h: number;
}

/** Rectangles whose areas are as their sizes, as square as they can be (squarified), in percent. */
export function treemap(sizes: [string, number][]): Tile[] {
  const sorted = sizes.filter(([, size]) => size > 0).sort((a, b) => b[1] - a[1]);
  const total = sorted.reduce((sum, [, size]) => sum + size, 0);
  const tiles: Tile[] = [];
  let box = { x: 0, y: 0, w: 100, h: 100 };
  let rest = total;
  let index = 0;
  while (index < sorted.length) {
    const wide = box.w >= box.h;
    const side = wide ? box.h : box.w;
    const other = wide ? box.w : box.h;
    let row: [string, number][] = [];
    let best = Infinity;
    for (let end = index; end < sorted.length; end++) {
      const candidate = sorted.slice(index, end + 1);
      const sum = candidate.reduce((all, [, size]) => all + size, 0);
      const depth = (sum / rest) * other;
      const worst = Math.max(...candidate.map(([, size]) => {
        const length = (size / sum) * side;
        return Math.max(depth / length, length / depth);
      }));
      if (worst > best) break;
      best = worst;
      row = candidate;
    }
    const sum = row.reduce((all, [, size]) => all + size, 0);
    const depth = (sum / rest) * other;
    let along = 0;
    for (const [name, size] of row) {
      const length = (size / sum) * side;
      tiles.push(wide ? { name, size, x: box.x, y: box.y + along, w: depth, h: length } : { name, size, x: box.x + along, y: box.y, w: length, h: depth });
      along += length;
    }
    box = wide ? { ...box, x: box.x + depth, w: box.w - depth } : { ...box, y: box.y + depth, h: box.h - depth };
    rest -= sum;
    index += row.length;
  }
  return tiles;
}

export function Treemap({ sizes, label }: { sizes: [string, number][]; label: string }) {
  return (
    <div class="treemap" role="img" aria-label={`${label}: ${sizes.map(([name, size]) => `${name} ${size}`).join(", ")}`}>
      {treemap(sizes).map((tile) => (
        <div key={tile.name} style={{ left: `${tile.x}%`, top: `${tile.y}%`, width: `${tile.w}%`, height: `${tile.h}%` }} title={`${tile.name}: ${tile.size}`}>
          <b>{tile.name}</b>
          {tile.size}
        </div>
      ))}
    </div>
  );
}
