// Icons: thin lines on a 16-unit square, drawn here so that nothing is fetched.
const PATHS = {
  fleet: "M2.5 3.5h11M2.5 8h11M2.5 12.5h7",
  composition: "M8 1.8 13.5 5v6L8 14.2 2.5 11V5L8 1.8ZM2.5 5 8 8.2 13.5 5M8 8.2v6",
  function: "M10.5 2.5c-2 0-2.3 1.2-2.5 2.6L6.8 12c-.2 1.2-.6 2-2.3 2M5 7h6",
  rollout: "M2 13.5h3v-3h3v-3h3v-3h3",
  preview: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8ZM8 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4Z",
  policy: "M3 3.5h10v10H3zM3 6.5h10M6 2v2.5M10 2v2.5",
  operation: "m9.5 1.5-6 8h4l-1 5 6-8h-4z",
  plane: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM14 14l-3.4-3.4",
  check: "m3.5 8.5 3 3 6-7",
  ready: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM5.4 8.2l1.9 1.9 3.4-4",
  cross: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM6 6l4 4m0-4-4 4",
  clock: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM8 4.8V8l2.2 1.5",
  pause: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM6.5 6v4M9.5 6v4",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9",
  question: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM6.4 6.2c.2-2 3.4-1.8 3.2.2-.1 1-1.6 1.2-1.6 2.3M8 11h.01",
  dot: "M8 10.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4Z",
  warn: "M8 2 14.5 13.5h-13L8 2ZM8 6.5v3M8 11.5h.01",
  ghost: "M3 3l10 10M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4Z",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6ZM8 1.5v1.6M8 12.9v1.6M1.5 8h1.6M12.9 8h1.6M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M12.6 3.4l-1.1 1.1M4.5 11.5l-1.1 1.1",
  moon: "M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5 5.8 5.8 0 1 0 13.5 9.6Z",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  right: "m6 3.5 4.5 4.5L6 12.5",
  left: "M10 3.5 5.5 8l4.5 4.5",
  info: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM8 7.4v3.4M8 5.2h.01",
  bolt: "m9.5 1.5-6 8h4l-1 5 6-8h-4z",
  out: "M9 2.5h4.5V7M13.5 2.5 7 9M11 9.5v4H2.5V5h4",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Mark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#3b5bdb" />
      <path d="M8 22V10h7.2a4.6 4.6 0 0 1 0 9.2H8" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" stroke-linejoin="round" />
      <circle cx="23.5" cy="21.5" r="2.5" fill="#fff" />
    </svg>
  );
}
