// Where the boxes of a tree go: parents to the left, each in the middle of its children.
import type { TreeNode } from "./types";

export interface Request {
  root: TreeNode;
}
export interface Box {
  id: string;
  kind: string;
  name: string;
  health: string;
  x: number;
  y: number;
  width: number;
  height: number;
}
export interface Laid {
  boxes: Box[];
  edges: [number, number, number, number][];
  width: number;
  height: number;
  grouped: boolean;
}

const WIDTH = 210;
const HEIGHT = 44;
const GAP_X = 56;
const GAP_Y = 12;
export const MAX_NODES = 500;
const WORST = ["NotSynced", "Deviating", "Missing", "NotReady", "Unknown", "Deleting", "Paused", "Present", "Ready"];

export function sizeOf(node: TreeNode): number {
  return 1 + node.children.reduce((sum, child) => sum + sizeOf(child), 0);
}

/** Children of a kind become one, as healthy as the worst of them. */
export function grouped(node: TreeNode): TreeNode {
  const kinds = new Map<string, TreeNode[]>();
  for (const child of node.children) {
    const key = `${child.apiVersion}/${child.kind}`;
    kinds.set(key, [...(kinds.get(key) ?? []), child]);
  }
  const children = [...kinds.entries()].map(([key, found]) => {
    const first = found[0]!;
    const health = WORST.find((word) => found.some((each) => each.health === word)) ?? "Unknown";
    const below = { ...first, children: found.flatMap((each) => each.children) };
    return { ...grouped(below), id: `${node.id}>${key}`, name: found.length === 1 ? first.name : `${found.length} × ${first.kind}`, health: health as TreeNode["health"] };
  });
  return { ...node, children };
}

export function layout(root: TreeNode): Laid {
  const large = sizeOf(root) > MAX_NODES;
  const boxes: Box[] = [];
  const edges: Laid["edges"] = [];
  let next = 8;
  const place = (node: TreeNode, depth: number, path: string): number => {
    const x = 8 + depth * (WIDTH + GAP_X);
    const mids = node.children.map((child, index) => place(child, depth + 1, `${path}.${index}`));
    let y: number;
    if (mids.length) y = (mids[0]! + mids[mids.length - 1]!) / 2 - HEIGHT / 2;
    else {
      y = next;
      next += HEIGHT + GAP_Y;
    }
    const name = node.name.length > 27 ? `${node.name.slice(0, 13)}…${node.name.slice(-12)}` : node.name;
    boxes.push({ id: path, kind: node.kind, name, health: node.health, x, y, width: WIDTH, height: HEIGHT });
    const mid = y + HEIGHT / 2;
    for (const to of mids) edges.push([x + WIDTH, mid, x + WIDTH + GAP_X, to]);
    return mid;
  };
  place(large ? grouped(root) : root, 0, "0");
  const width = Math.max(...boxes.map((box) => box.x + box.width)) + 8;
  return { boxes, edges, width, height: next + 8, grouped: large };
}
