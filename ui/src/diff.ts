// The difference of two texts, line by line (Myers), folded to what changed and three lines around it.
export type Line =
  | { kind: "same" | "add" | "del"; text: string; before: number; after: number }
  | { kind: "skipped"; count: number };

const MAX_EDITS = 4000;

export function diffLines(before: string, after: string): Line[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let endA = a.length;
  let endB = b.length;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) {
    endA--;
    endB--;
  }
  const lines: Line[] = [];
  for (let i = 0; i < start; i++) lines.push({ kind: "same", text: a[i]!, before: i + 1, after: i + 1 });
  let x = start;
  let y = start;
  for (const step of edits(a.slice(start, endA), b.slice(start, endB))) {
    if (step === "del") lines.push({ kind: "del", text: a[x]!, before: ++x, after: 0 });
    else if (step === "add") lines.push({ kind: "add", text: b[y]!, before: 0, after: ++y });
    else lines.push({ kind: "same", text: a[x]!, before: ++x, after: ++y });
  }
  for (let i = endA; i < a.length; i++) lines.push({ kind: "same", text: a[i]!, before: i + 1, after: i - endA + endB + 1 });
  return lines;
}

function edits(a: string[], b: string[]): ("same" | "add" | "del")[] {
  const n = a.length;
  const m = b.length;
  const max = Math.min(n + m, MAX_EDITS);
  const trail: Int32Array[] = [];
  const offset = max + 1;
  const furthest = new Int32Array(2 * max + 3);
  for (let d = 0; d <= max; d++) {
    trail.push(furthest.slice());
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && furthest[offset + k - 1]! < furthest[offset + k + 1]!);
      let x = down ? furthest[offset + k + 1]! : furthest[offset + k - 1]! + 1;
      let y = x - k;
      while (x < n && y < m && a[x] === b[y]) {
        x++;
        y++;
      }
      furthest[offset + k] = x;
      if (x >= n && y >= m) return backtrack(trail, n, m, offset);
    }
  }
  // Two texts with hardly a line in common: all of one, then all of the other.
  return [...a.map(() => "del" as const), ...b.map(() => "add" as const)];
}

function backtrack(trail: Int32Array[], n: number, m: number, offset: number): ("same" | "add" | "del")[] {
  const steps: ("same" | "add" | "del")[] = [];
  let x = n;
  let y = m;
  for (let d = trail.length - 1; d >= 0; d--) {
    const furthest = trail[d]!;
    const k = x - y;
    const down = k === -d || (k !== d && furthest[offset + k - 1]! < furthest[offset + k + 1]!);
    const fromK = down ? k + 1 : k - 1;
    const fromX = d === 0 ? 0 : furthest[offset + fromK]!;
    const fromY = d === 0 ? 0 : fromX - fromK;
    while (x > fromX && y > fromY) {
      steps.push("same");
      x--;
      y--;
    }
    if (d === 0) break;
    steps.push(down ? "add" : "del");
    x = fromX;
    y = fromY;
  }
  return steps.reverse();
}

/** Leave out what is the same, but for `around` lines beside each change. */
export function folded(lines: Line[], around = 3): Line[] {
  const near = new Set<number>();
  lines.forEach((line, index) => {
    if (line.kind === "add" || line.kind === "del") for (let i = index - around; i <= index + around; i++) near.add(i);
  });
  const shown: Line[] = [];
  let skipped = 0;
  lines.forEach((line, index) => {
    if (near.has(index)) {
      if (skipped) shown.push({ kind: "skipped", count: skipped });
      skipped = 0;
      shown.push(line);
    } else skipped++;
  });
  if (skipped && shown.length) shown.push({ kind: "skipped", count: skipped });
  return shown;
}
