import { describe, expect, it } from "vitest";
import { diffLines, folded } from "../src/diff";
import { ago, duration, many, percent, shortName, span } from "../src/format";
import { MAX_NODES, grouped, layout, sizeOf } from "../src/layout";
import { treemap } from "../src/parts/charts";
import type { TreeNode } from "../src/types";

function node(name: string, children: TreeNode[] = [], health: TreeNode["health"] = "Ready", kind = "K"): TreeNode {
  return { id: name, kind, group: "g", apiVersion: "g/v1", namespace: "", name, resource: "", health, state: "", created: "", revision: "", link: "", error: "", children };
}

function sides(before: string, after: string): [string, string] {
  const lines = diffLines(before, after);
  const text = (skip: string) => lines.flatMap((line) => (line.kind === "skipped" || line.kind === skip ? [] : [line.text])).join("\n");
  return [text("add"), text("del")];
}

describe("a diff", () => {
  it("gives back both texts, whatever they are", () => {
    let seed = 7;
    const random = (size: number) => (seed = (seed * 48271) % 2147483647) % size;
    for (let round = 0; round < 300; round++) {
      const text = () => Array.from({ length: random(12) }, () => "abcd"[random(4)]).join("\n");
      const [a, b] = [text(), text()];
      expect(sides(a, b)).toEqual([a, b]);
    }
  });
  it("is as short as it can be", () => {
    const changed = diffLines("a\nb\nc\nd", "a\nc\nd\ne").filter((line) => line.kind !== "same");
    expect(changed.map((line) => line.kind)).toEqual(["del", "add"]);
  });
  it("numbers the lines of both sides", () => {
    const last = diffLines("a\nb", "x\na\nb").at(-1);
    expect(last).toEqual({ kind: "same", text: "b", before: 2, after: 3 });
  });
  it("folds what is the same and says how much", () => {
    const lines = Array.from({ length: 40 }, (_, index) => `line ${index}`);
    const shown = folded(diffLines(lines.join("\n"), lines.toSpliced(20, 1, "other").join("\n")));
    expect(shown[0]).toEqual({ kind: "skipped", count: 17 });
    expect(shown.filter((line) => line.kind !== "skipped")).toHaveLength(8);
  });
  it("of equal texts is nothing", () => {
    expect(folded(diffLines("a\nb", "a\nb"))).toEqual([]);
  });
});

describe("words", () => {
  it("tell spans in at most two units", () => {
    expect(span(0)).toBe("0s");
    expect(span(59)).toBe("59s");
    expect(span(3_725)).toBe("1h 2m");
    expect(span(5 * 86_400 + 7_200)).toBe("5d");
  });
  it("tell ages, and nothing of no time", () => {
    expect(ago("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:05:00Z"))).toBe("5m");
    expect(ago("")).toBe("");
  });
  it("count", () => {
    expect(many(1, "XR")).toBe("1 XR");
    expect(many(2000, "XR")).toBe("2,000 XRs");
    expect(percent(1, 0)).toBe("–");
  });
  it("measure", () => {
    expect(duration(0.00002)).toBe("20 µs");
    expect(duration(0.25)).toBe("250 ms");
    expect(duration(2)).toBe("2.00 s");
  });
  it("shorten long names in the middle", () => {
    expect(shortName("short")).toBe("short");
    expect(shortName("a".repeat(40))).toHaveLength(21);
  });
});

describe("the layout of a tree", () => {
  it("places a parent in the middle of its children, and no two boxes on each other", () => {
    const laid = layout(node("a", [node("b"), node("c", [node("d"), node("e")])]));
    expect(laid.boxes).toHaveLength(5);
    expect(laid.edges).toHaveLength(4);
    for (const one of laid.boxes)
      for (const other of laid.boxes) if (one !== other && one.x === other.x) expect(Math.abs(one.y - other.y)).toBeGreaterThanOrEqual(one.height);
  });
  it("groups by kind what is too much, as healthy as the worst", () => {
    const many = Array.from({ length: MAX_NODES + 1 }, (_, index) => node(`n${index}`, [], index === 3 ? "NotSynced" : "Ready"));
    const laid = layout(node("root", many));
    expect(laid.grouped).toBe(true);
    expect(laid.boxes).toHaveLength(2);
    expect(laid.boxes.find((box) => box.name.includes("×"))?.health).toBe("NotSynced");
    expect(sizeOf(grouped(node("root", many)))).toBe(2);
  });
});

describe("a treemap", () => {
  it("gives each its share, and covers all", () => {
    const tiles = treemap([["a", 6], ["b", 3], ["c", 1]]);
    const area = (name: string) => {
      const tile = tiles.find((each) => each.name === name)!;
      return tile.w * tile.h;
    };
    expect(area("a")).toBeCloseTo(6000);
    expect(area("b")).toBeCloseTo(3000);
    expect(area("c")).toBeCloseTo(1000);
  });
  it("leaves out what is nothing", () => {
    expect(treemap([["a", 0]])).toEqual([]);
  });
});
