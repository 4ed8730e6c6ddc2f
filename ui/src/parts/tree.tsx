// What an XR is made of: a tree that a keyboard walks, and a graph of the same as an extra.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Laid, type Request } from "../layout";
import { href } from "../router";
import type { TreeNode } from "../types";
import { Time } from "./common";
import { Icon } from "./icons";
import { Health, toneOf, wordOf } from "./status";

export function Tree({ root }: { root: TreeNode }) {
  const closed = useSignal(new Set<string>());
  const box = useRef<HTMLDivElement>(null);
  const move = (from: HTMLElement, by: number) => {
    const nodes = [...(box.current?.querySelectorAll<HTMLElement>("[role=treeitem]") ?? [])];
    nodes[nodes.indexOf(from) + by]?.focus();
  };
  const toggle = (id: string, open: boolean) => {
    const next = new Set(closed.value);
    if (open) next.delete(id);
    else next.add(id);
    closed.value = next;
  };
  const draw = (node: TreeNode, level: number, path: string) => {
    const id = `${path}/${node.id}`;
    const open = !closed.value.has(id);
    return (
      <div key={id} role="none">
        <div
          class="node"
          role="treeitem"
          aria-level={level}
          aria-expanded={node.children.length ? open : undefined}
          tabIndex={level === 1 ? 0 : -1}
          onClick={() => node.children.length && toggle(id, !open)}
          onKeyDown={(event) => {
            const here = event.currentTarget;
            if (event.key === "ArrowDown" || event.key === "j") move(here, 1);
            else if (event.key === "ArrowUp" || event.key === "k") move(here, -1);
            else if (event.key === "ArrowRight") node.children.length && !open ? toggle(id, true) : move(here, 1);
            else if (event.key === "ArrowLeft") node.children.length && open ? toggle(id, false) : move(here, -1);
            else if (event.key === "Enter") {
              if (node.link && level > 1) here.querySelector("a")?.click();
              else if (node.children.length) toggle(id, !open);
            } else return;
            event.preventDefault();
            event.stopPropagation();
          }}
        >
          <span class="twist">{node.children.length > 0 && <Icon name="right" />}</span>
          <Health value={node.health} />
          <span class="badge">{node.kind}</span>
          {node.link && level > 1 ? (
            <a class="link name" href={href(node.link)} tabIndex={-1}>
              {node.name}
            </a>
          ) : (
            <span class="name">{node.name}</span>
          )}
          {node.resource && <span class="faint small">{node.resource}</span>}
          {node.namespace && level === 1 && <span class="faint small">{node.namespace}</span>}
          <span class="state">{node.error || node.state}</span>
          <span class="faint small">
            <Time at={node.created} />
          </span>
        </div>
        {open && node.children.length > 0 && (
          <div class="children" role="group">
            {node.children.map((child) => draw(child, level + 1, id))}
          </div>
        )}
      </div>
    );
  };
  return (
    <div class="tree" role="tree" aria-label={`What ${root.name} is made of`} ref={box}>
      {draw(root, 1, "")}
    </div>
  );
}

export function Graph({ root }: { root: TreeNode }) {
  const laid = useSignal<Laid | null>(null);
  useEffect(() => {
    // Laid out beside the page: a large tree must not hold up a click.
    const worker = new Worker(new URL("../layout.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = (event: MessageEvent<Laid>) => (laid.value = event.data);
    worker.postMessage({ root } satisfies Request);
    return () => worker.terminate();
  }, [root]);
  const drawn = laid.value;
  if (!drawn) return <p class="body muted">Drawing…</p>;
  return (
    <div class="graph" role="img" aria-label={`Graph of ${drawn.boxes.length} objects below ${root.name}; the tree says the same in words`} tabIndex={0}>
      {drawn.grouped && <p class="small muted">More than 500 objects: grouped by kind.</p>}
      <svg width={drawn.width} height={drawn.height} viewBox={`0 0 ${drawn.width} ${drawn.height}`}>
        {drawn.edges.map(([x1, y1, x2, y2], index) => (
          <path key={index} class="edge" d={`M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`} />
        ))}
        {drawn.boxes.map((box) => (
          <g key={box.id} transform={`translate(${box.x} ${box.y})`}>
            <rect class="box" width={box.width} height={box.height} rx="8" />
            <rect class={`g-${toneOf(box.health)}`} width="4" height={box.height - 12} x="6" y="6" rx="2" />
            <text x="18" y="18" font-size="11" opacity="0.75">
              {box.kind} · {wordOf(box.health)}
            </text>
            <text x="18" y="34" font-size="12.5" font-weight="550">
              {box.name}
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}
