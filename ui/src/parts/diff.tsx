import { useMemo } from "preact/hooks";
import { diffLines, folded } from "../diff";
import type { FieldDiff } from "../types";

export function TextDiff({ before, after, label }: { before: string; after: string; label: string }) {
  const lines = useMemo(() => folded(diffLines(before, after)), [before, after]);
  if (!lines.length) return <p class="body muted">They are the same.</p>;
  return (
    <div class="diff" role="region" aria-label={label} tabIndex={0}>
      {lines.map((line, index) =>
        line.kind === "skipped" ? (
          <div key={index} class="skipped">
            {line.count} unchanged {line.count === 1 ? "line" : "lines"}
          </div>
        ) : (
          <div key={index} class={`line ${line.kind}`}>
            <span>{line.before || ""}</span>
            <span>{line.after || ""}</span>
            <span aria-label={line.kind === "add" ? "added" : line.kind === "del" ? "removed" : undefined}>{line.kind === "add" ? "+" : line.kind === "del" ? "−" : ""}</span>
            <code>{line.text}</code>
          </div>
        ),
      )}
    </div>
  );
}

/** A unified diff that somebody else made, shown line by line. */
export function UnifiedDiff({ text, label }: { text: string; label: string }) {
  return (
    <div class="diff" role="region" aria-label={label} tabIndex={0}>
      {text.split("\n").map((line, index) => {
        const kind = line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : "same";
        return (
          <div key={index} class={`line ${kind}`}>
            <span />
            <span />
            <span>{kind === "add" ? "+" : kind === "del" ? "−" : ""}</span>
            <code>{kind === "same" ? line : line.slice(1)}</code>
          </div>
        );
      })}
    </div>
  );
}

export function Fields({ fields, more }: { fields: FieldDiff[]; more: number }) {
  return (
    <div class="fields">
      {fields.map((field) => (
        <div key={field.path}>
          <span class="muted">{field.path || "(all of it)"}</span>
          <span>
            {field.kind !== "added" && <span class="was">{field.before || '""'}</span>}
            {field.kind === "changed" && <span class="faint"> → </span>}
            {field.kind !== "removed" && <span class="is">{field.after || '""'}</span>}
          </span>
        </div>
      ))}
      {more > 0 && <div class="muted">and {more} more fields</div>}
    </div>
  );
}
