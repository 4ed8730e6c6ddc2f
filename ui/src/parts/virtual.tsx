// Rows that exist only while they can be seen: ten thousand scroll as ten do.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

const OVERSCAN = 8;

export function VirtualRows<T>(props: {
  rows: T[];
  height: number;
  total: number;
  selected: number;
  label: string;
  onSelect: (index: number) => void;
  onOpen: (index: number) => void;
  onNearEnd: () => void;
  row: (row: T, index: number, selected: boolean) => ComponentChildren;
}) {
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const size = useSignal(600);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const fit = () => {
      const room = innerHeight - element.getBoundingClientRect().top - scrollY * 0 - 24;
      size.value = Math.max(props.height * 6, Math.min(props.rows.length * props.height, Math.max(room, innerHeight * 0.55)));
    };
    fit();
    addEventListener("resize", fit);
    return () => removeEventListener("resize", fit);
  }, [props.rows.length]);
  const first = Math.max(0, Math.floor(top.value / props.height) - OVERSCAN);
  const last = Math.min(props.rows.length, Math.ceil((top.value + size.value) / props.height) + OVERSCAN);
  useEffect(() => {
    if (last >= props.rows.length - OVERSCAN && props.rows.length < props.total) props.onNearEnd();
  }, [last, props.rows.length, props.total]);
  useEffect(() => {
    const element = box.current;
    if (!element || props.selected < 0) return;
    const at = props.selected * props.height;
    if (at < element.scrollTop) element.scrollTop = at;
    else if (at + props.height > element.scrollTop + size.value) element.scrollTop = at + props.height - size.value;
  }, [props.selected]);
  const shown = [];
  for (let index = first; index < last; index++) shown.push(props.row(props.rows[index]!, index, index === props.selected));
  return (
    <div
      ref={box}
      class="virtual"
      style={{ height: `${size.value}px` }}
      onScroll={(event) => (top.value = event.currentTarget.scrollTop)}
      role="listbox"
      aria-label={props.label}
      tabIndex={0}
      onKeyDown={(event) => {
        const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
        if (move) {
          event.preventDefault();
          props.onSelect(Math.max(0, Math.min(props.rows.length - 1, props.selected + move)));
        } else if (event.key === "Enter" && props.selected >= 0) props.onOpen(props.selected);
      }}
    >
      <div class="spacer" style={{ height: `${props.rows.length * props.height}px` }}>
        {shown}
      </div>
    </div>
  );
}
