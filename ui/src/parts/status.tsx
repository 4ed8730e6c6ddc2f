// How something is: always an icon and a word, the colour only helps.
import { Icon, type IconName } from "./icons";

export type Tone = "good" | "warn" | "bad" | "idle" | "accent";

const HEALTH: Record<string, [Tone, IconName, string]> = {
  Ready: ["good", "ready", "Ready"],
  NotReady: ["warn", "clock", "Not ready"],
  NotSynced: ["bad", "cross", "Not synced"],
  Deviating: ["bad", "warn", "Plan deviates"],
  Paused: ["idle", "pause", "Paused"],
  Deleting: ["idle", "trash", "Deleting"],
  Missing: ["bad", "ghost", "Missing"],
  Present: ["idle", "dot", "Present"],
  Unknown: ["idle", "question", "Unknown"],
};
const PHASE: Record<string, [Tone, IconName]> = {
  Completed: ["good", "ready"], Complete: ["good", "ready"], Succeeded: ["good", "ready"], complete: ["good", "ready"], Passed: ["good", "ready"], Finished: ["good", "ready"], True: ["good", "ready"], Active: ["good", "ready"], Released: ["good", "ready"], Open: ["good", "ready"], ScheduledSuccessfully: ["good", "ready"], Available: ["good", "ready"],
  Running: ["accent", "clock"], running: ["accent", "clock"], Started: ["accent", "clock"], Admitting: ["accent", "clock"], Settling: ["accent", "clock"], Soaking: ["accent", "clock"], Gating: ["accent", "clock"], Previewing: ["accent", "clock"], InRollout: ["accent", "clock"],
  AwaitingApproval: ["warn", "clock"], Waiting: ["idle", "clock"], Paused: ["warn", "pause"], Held: ["warn", "pause"], Inconclusive: ["warn", "question"], Aborting: ["warn", "warn"], Undoing: ["warn", "warn"], Superseded: ["idle", "ghost"],
  Failed: ["bad", "cross"], failed: ["bad", "cross"], Aborted: ["bad", "cross"], Undone: ["bad", "cross"], False: ["bad", "cross"], Error: ["bad", "warn"], Closed: ["idle", "pause"],
};

export function toneOf(health: string): Tone {
  return HEALTH[health]?.[0] ?? "idle";
}

export function wordOf(health: string): string {
  return HEALTH[health]?.[2] ?? health;
}

export function iconOf(health: string): IconName {
  return HEALTH[health]?.[1] ?? "question";
}

export function Health({ value, chip = false }: { value: string; chip?: boolean }) {
  const [tone, icon, word] = HEALTH[value] ?? ["idle", "question", value];
  return (
    <span class={`status tone-${tone}${chip ? " chip" : ""}`}>
      <Icon name={icon} />
      {word}
    </span>
  );
}

export function phaseTone(phase: string): Tone {
  return PHASE[phase]?.[0] ?? "idle";
}

export function Phase({ value, chip = true, label }: { value: string; chip?: boolean; label?: string }) {
  const [tone, icon] = PHASE[value] ?? (value.startsWith("Not ") ? (["bad", "cross"] as const) : (["idle", "clock"] as const));
  return (
    <span class={`status tone-${tone}${chip ? " chip" : ""}`}>
      <Icon name={icon} />
      {label ?? (value || "Pending")}
    </span>
  );
}

/** A condition's status: True is not always good news, but unknown and false need a look. */
export function Truth({ value, yes = "Yes", no = "No" }: { value: string; yes?: string; no?: string }) {
  if (!value) return <span class="faint">–</span>;
  return <Phase value={value} chip={false} label={value === "True" ? yes : value === "False" ? no : value} />;
}
