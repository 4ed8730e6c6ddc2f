// The keyboard: two letters go somewhere, j and k move, / searches, ? explains.
import { signal } from "@preact/signals";
import { go } from "./router";

export const helpOpen = signal(false);
export const PLACES: [string, string, string][] = [
  ["f", "/", "Fleet"],
  ["c", "/compositions", "Compositions"],
  ["u", "/functions", "Functions"],
  ["r", "/rollouts", "Rollouts"],
  ["p", "/previews", "Previews"],
  ["w", "/policies", "Policies and windows"],
  ["o", "/operations", "Operations"],
  ["x", "/control-plane", "Control plane"],
];

type Mover = (by: number) => void;
let mover: { move: Mover; open: () => void } | null = null;

/** The list that j, k and Enter are for. */
export function useForKeys(move: Mover, open: () => void): () => void {
  const mine = { move, open };
  mover = mine;
  return () => {
    if (mover === mine) mover = null;
  };
}

let waiting = 0;

export function startKeys(): void {
  addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    if (target.closest("input, textarea, select, dialog[open]")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const now = Date.now();
    if (now - waiting < 1200) {
      waiting = 0;
      const place = PLACES.find(([key]) => key === event.key);
      if (place) {
        event.preventDefault();
        go(place[1]);
        return;
      }
    }
    switch (event.key) {
      case "g":
        waiting = now;
        break;
      case "/":
        event.preventDefault();
        document.querySelector<HTMLInputElement>("#search")?.focus();
        break;
      case "?":
        helpOpen.value = true;
        break;
      case "j":
        mover ? mover.move(1) : step(1);
        break;
      case "k":
        mover ? mover.move(-1) : step(-1);
        break;
      case "Enter":
        if (target === document.body) mover?.open();
        break;
    }
  });
}

/** Without a list of its own, a screen's rows are its links in tables, in order. */
function step(by: number): void {
  const links = [...document.querySelectorAll<HTMLElement>("main tbody a, main [data-row]")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
}
