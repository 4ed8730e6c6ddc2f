// Written by tools/ui_types.py from the dashboard's OpenAPI document. Change the Structs, then run it again.

/** Something to do to one object. `confirm` is its name, as the user saw it when they said yes. */
export interface Act {
  action: string;
  kind?: string;
  namespace?: string;
  name: string;
  confirm: string;
  reason?: string;
  value?: string;
}

/** Whether the user may do something, and if not, why. */
export interface Allowed {
  action: string;
  label: string;
  allowed: boolean;
  why: string;
  command: string;
  needsReason: boolean;
  danger: boolean;
  detail: string;
}

/** XRs that would all change the same way. */
export interface ChangeClass {
  id: string;
  xrs: number;
  risk: string;
  change: string;
  diff: string;
  examples: Reference[];
}

export interface ChangeRow {
  composition: string;
  before: string;
  after: string;
  cause: string;
}

export interface Changes {
  changes: StreamChange[];
  asOf: string;
}

export interface CompositionDetail {
  row: CompositionRow;
  revisions: RevisionRow[];
  usage: RevisionUsage;
  functions: string[];
  historyLimit: number;
  rollouts: RolloutBrief[];
  conditions: Condition[];
  actions: Allowed[];
}

export interface CompositionPage {
  rows: CompositionRow[];
}

export interface CompositionRow {
  name: string;
  kind: string;
  group: string;
  users: number;
  revisions: number;
  behind: number;
  rollout: string;
  created: string;
  valid: string;
}

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
  since: string;
}

export interface ControlPlane {
  server: string;
  engine: string;
  version: string;
  figures: Figure[];
  queues: QueueRow[];
  watches: Record<string, number>;
  objects: Record<string, number>;
  findings: FindingRow[];
  packages: PackageRow[];
  problems: Problem[];
}

/** What an action did, in a sentence. */
export interface Done {
  message: string;
}

export interface EventRow {
  type: string;
  reason: string;
  message: string;
  count: number;
  last: string;
  source: string;
}

export interface FailingRow {
  xr: string;
  link: string;
  since: string;
  message: string;
}

export interface FieldDiff {
  path: string;
  before: string;
  after: string;
  kind: "added" | "changed" | "removed";
}

export interface Figure {
  name: string;
  value: number;
  unit: string;
  note: string;
}

export interface FindingRow {
  level: string;
  subject: string;
  message: string;
  hint: string;
}

export interface Found {
  kind: string;
  name: string;
  namespace: string;
  health: string;
  link: string;
}

export interface FunctionDetail {
  row: FunctionRow;
  conditions: Condition[];
  policy: string;
  revisions: FunctionRevisionRow[];
  compositions: string[];
  metrics: boolean;
}

export interface FunctionPage {
  rows: FunctionRow[];
  metrics: boolean;
}

export interface FunctionRevisionRow {
  name: string;
  number: number;
  package: string;
  state: string;
  healthy: string;
  message: string;
  users: number;
  created: string;
  calls: number;
  errors: number;
  milliseconds: number;
  actions: Allowed[];
}

export interface FunctionRow {
  name: string;
  package: string;
  healthy: string;
  active: string;
  revisions: number;
  users: number;
  calls: number;
  errors: number;
  milliseconds: number;
  cacheHits: number;
  cacheLookups: number;
  builtin: boolean;
}

export interface GateRow {
  name: string;
  verdict: string;
  value: string;
  threshold: string;
  query: string;
  message: string;
  measured: number;
  series: number[];
}

export interface HistoryRow {
  time: string;
  by: string;
  action: string;
  reason: string;
  outcome: string;
}

/** The XRs of one kind, counted. */
export interface KindSummary {
  id: string;
  kind: string;
  group: string;
  definition: string;
  total: number;
  health: Record<string, number>;
  compositions: string[];
  revisions: RevisionCount[];
}

/** A code that opens one session, once, within a minute. */
export interface Link {
  code: string;
}

/** Whether the stream hears the control plane. */
export interface Live {
  live: boolean;
  message: string;
}

/** A one-time code, or a bearer token of the control plane. */
export interface Login {
  code?: string;
  token?: string;
}

export interface NotPreviewed {
  xr: string;
  link: string;
  reason: string;
}

/** An Operation, CronOperation, WatchOperation or ActionSet. */
export interface OperationRow {
  kind: string;
  namespace: string;
  name: string;
  state: string;
  message: string;
  created: string;
  progress: string;
  schedule: string;
  last: string;
  phases: PhaseRow[];
  actions: Allowed[];
}

export interface Operations {
  rows: OperationRow[];
  problems: Problem[];
}

/** The whole fleet in numbers. */
export interface Overview {
  asOf: string;
  synced: boolean;
  total: number;
  health: Record<string, number>;
  kinds: KindSummary[];
  rollouts: RolloutBrief[];
  packagesUnhealthy: string[];
  problems: Problem[];
  definitions: number;
}

export interface PackageRow {
  kind: string;
  name: string;
  package: string;
  installed: string;
  healthy: string;
  message: string;
}

export interface PhaseRow {
  name: string;
  state: string;
  progress: string;
  detail: string;
}

export interface PinnedStep {
  step: string;
  function: string;
  pin: string;
}

export interface PlannedRow {
  resource: string;
  action: string;
  kind: string;
  name: string;
  namespace: string;
  ready: boolean;
}

export interface Policies {
  policies: PolicyRow[];
  windows: WindowRow[];
  served: boolean;
  begin: string;
  end: string;
}

export interface PolicyRow {
  name: string;
  selects: string;
  start: string;
  waves: string[];
  gates: string[];
  conditions: Condition[];
}

export interface PreviewDetail {
  row: PreviewRow;
  summary: Record<string, number>;
  classes: ChangeClass[];
  moreClasses: number;
  blastNamespaces: number;
  blastKinds: Record<string, number>;
  blastTeams: Record<string, number>;
  conditions: Condition[];
  inputs: Record<string, string>;
  notPreviewed: NotPreviewed[];
  drifting: string[];
  unstable: string[];
  markdown: string;
  reportsNote: string;
  actions: Allowed[];
}

export interface PreviewPage {
  rows: PreviewRow[];
  served: boolean;
}

export interface PreviewRow {
  name: string;
  phase: string;
  created: string;
  verdict: string;
  change: string;
  xrs: number;
  changed: number;
  deletes: number;
}

/** Something that keeps this server from showing all there is. */
export interface Problem {
  what: string;
  message: string;
  hint: string;
}

export interface QueueRow {
  controller: string;
  waiting: number;
  delayed: number;
  active: number;
  oldest: number;
  total: number;
  failed: number;
  milliseconds: number;
}

export interface ReadRow {
  name: string;
  kind: string;
  found: string[];
}

export interface Reference {
  kind: string;
  namespace: string;
  name: string;
  link: string;
}

/** Every answer that is no success. */
export interface Refusal {
  code: number;
  reason: string;
  message: string;
  hint: string;
}

export interface ResourceDiff {
  key: string;
  kind: string;
  change: "added" | "changed" | "removed";
  fields: FieldDiff[];
  more: number;
}

export interface ResultRow {
  severity: string;
  reason: string;
  message: string;
}

export interface RevisionCount {
  name: string;
  number: number;
  count: number;
  newest: boolean;
}

/** A CompositionRevision on the timeline. `released` is empty where no policy holds. */
export interface RevisionRow {
  name: string;
  number: number;
  created: string;
  users: number;
  newest: boolean;
  released: string;
  valid: string;
  message: string;
  steps: PinnedStep[];
  collectable: boolean;
  keeps: string;
}

export interface RevisionUsage {
  revisions: string[];
  samples: Sample[];
  source: string;
}

export interface RolloutBrief {
  name: string;
  phase: string;
  composition: string;
  target: number;
  total: number;
  waiting: string;
}

export interface RolloutDetail {
  row: RolloutRow;
  changes: ChangeRow[];
  counts: Record<string, number>;
  waves: WaveRow[];
  waitingFor: string;
  waitingMessage: string;
  message: string;
  failing: FailingRow[];
  history: HistoryRow[];
  preview: string;
  policy: string;
  conditions: Condition[];
  actions: Allowed[];
}

export interface RolloutPage {
  rows: RolloutRow[];
  served: boolean;
}

export interface RolloutRow {
  name: string;
  phase: string;
  compositions: string[];
  cause: string;
  created: string;
  target: number;
  total: number;
  failed: number;
  waiting: string;
}

export interface RunDetail {
  id: number;
  uid: string;
  kind: string;
  group: string;
  namespace: string;
  name: string;
  link: string;
  started: string;
  seconds: number;
  trigger: string;
  composition: string;
  revision: string;
  failure: string;
  steps: StepLane[];
  plan: PlannedRow[];
  planned: boolean;
  warnings: string[];
  older: number;
  newer: number;
}

export interface RunPage {
  rows: RunRow[];
}

export interface RunRow {
  id: number;
  uid: string;
  started: string;
  seconds: number;
  trigger: string;
  revision: string;
  failure: string;
}

/** How many XRs used each revision at one moment, in the order of `RevisionUsage.revisions`. */
export interface Sample {
  time: string;
  counts: number[];
}

export interface SearchPage {
  found: Found[];
  more: number;
}

/** Who looks, at what, and what this server lets them do. */
export interface Session {
  user: string;
  groups: string[];
  server: string;
  engine: "embedded" | "kubernetes";
  version: string;
  readOnly: boolean;
  csrf: string;
  journal: boolean;
  rollouts: boolean;
  links: Record<string, string>;
}

/** One step of a run. `start` is seconds since the run began. */
export interface StepLane {
  step: string;
  function: string;
  revision: string;
  rule: string;
  rejected: [string, string][];
  iterations: number;
  cache: string;
  start: number;
  seconds: number;
  changes: ResourceDiff[];
  reads: ReadRow[];
  results: ResultRow[];
  ready: Record<string, boolean>;
  warnings: string[];
  error: string;
}

/** One change of the stream; `row` is there for XRs that still exist. */
export interface StreamChange {
  topic: string;
  id: string;
  gone: boolean;
  row: XrRow | null;
}

/** An object below an XR. `resource` is its name in the composition. */
export interface TreeNode {
  id: string;
  kind: string;
  group: string;
  apiVersion: string;
  namespace: string;
  name: string;
  resource: string;
  health: "Deleting" | "Deviating" | "Missing" | "NotReady" | "NotSynced" | "Paused" | "Present" | "Ready" | "Unknown";
  state: string;
  created: string;
  revision: string;
  link: string;
  error: string;
  children: TreeNode[];
}

export interface TwoTexts {
  before: string;
  after: string;
  beforeName: string;
  afterName: string;
}

export interface WaveRow {
  name: string;
  part: number;
  parts: number;
  xrs: number;
  target: number;
  ready: number;
  failed: number;
  started: string;
  finished: string;
  state: string;
  until: string;
  soak: string;
  approval: string;
  gates: GateRow[];
}

export interface WindowRow {
  name: string;
  effect: string;
  selects: string;
  timeZone: string;
  open: boolean;
  reason: string;
  next: string;
  spans: WindowSpan[];
}

export interface WindowSpan {
  begin: string;
  end: string;
}

/** One XR with what it is made of. */
export interface XrDetail {
  row: XrRow;
  uid: string;
  apiVersion: string;
  generation: number;
  plural: string;
  conditions: Condition[];
  tree: TreeNode;
  nodes: number;
  events: EventRow[];
  runs: RunRow[];
  runsNote: string;
  paused: boolean;
  deleting: string;
  budgetToken: string;
  updatePolicy: string;
  newestRevision: string;
  newestNumber: number;
  heldBy: string;
  parents: Reference[];
  claim: Reference | null;
  actions: Allowed[];
  links: Record<string, string>;
}

/** A page of XRs; `next` is empty on the last one. */
export interface XrPage {
  rows: XrRow[];
  next: string;
  matching: number;
  total: number;
  event: string;
}

/** An XR in a list. */
export interface XrRow {
  id: string;
  kind: string;
  group: string;
  namespace: string;
  name: string;
  health: "Deleting" | "Deviating" | "Missing" | "NotReady" | "NotSynced" | "Paused" | "Present" | "Ready" | "Unknown";
  reason: string;
  message: string;
  since: string;
  created: string;
  composition: string;
  revision: string;
  revisionNumber: number;
  labels: Record<string, string>;
  claim: string;
}
