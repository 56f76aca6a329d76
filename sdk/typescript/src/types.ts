/**
 * The fields of a response and of its `routing`.
 * Generated from the Structs in gateway/wire by `make sdk`: edit those.
 */

/** Repeats `reasoning` of the request. */
export interface ReasoningEcho {
  /** how much reasoning was asked for. */
  effort: string | null;
  /** the kind of summary that was asked for. */
  summary: string | null;
}

/** Repeats `text` of the request. */
export interface TextEcho {
  /** plain text, or a JSON schema that the text follows. */
  format: any;
  /** how wordy the text was asked to be. */
  verbosity?: string;
}

/** Says why a response failed. */
export interface ResponseError {
  /** for programs. */
  code: string;
  /** for people. */
  message: string;
  /** the field of the request that was wrong. */
  param?: string;
}

/** Says why a response is incomplete. */
export interface IncompleteDetails {
  /** `max_output_tokens` or `content_filter`; ours are `steered`, `cancelled` and `awaited`. */
  reason: string | null;
}

/** Counts the input tokens by kind. */
export interface InputDetails {
  /** input tokens that a KV cache held. */
  cached_tokens: number;
  /** input tokens that an upstream wrote to its cache. */
  cache_write_tokens: number;
}

/** Counts the output tokens by kind. */
export interface OutputDetails {
  /** output tokens spent on reasoning. */
  reasoning_tokens: number;
  /** tokens of the prediction that are in the answer, where one was checked. */
  accepted_prediction_tokens?: number;
  /** tokens of the prediction that were computed and are not in the answer. */
  rejected_prediction_tokens?: number;
}

/** Counts the tokens of a response, or of what a backend did for it. */
export interface Usage {
  /** tokens of the prompt. */
  input_tokens: number;
  /** the input tokens by kind. */
  input_tokens_details: InputDetails;
  /** tokens generated, reasoning included. */
  output_tokens: number;
  /** the output tokens by kind. */
  output_tokens_details: OutputDetails;
  /** input and output together. */
  total_tokens: number;
}

/** Describes a backend that works on the response. */
export interface RoutedBackend {
  /** its name in the gateway's configuration. */
  name: string;
  /** the group of engines that it belongs to. */
  group: "fast" | "deep";
  /** the model id that pins this backend. */
  model: string;
  /** whether a simulated engine answers, and no real one. */
  simulated: boolean;
  /** of a simulated engine: whose speed it has if it was not measured, and how far off that may be. */
  speed_basis?: string;
}

/** Says how the task was classified. */
export interface RoutedClass {
  /** the kind of engine that it needs by its words, as `p_deep` says. */
  label: "interactive" | "deep" | "uncertain";
  /** probability, from 0 to 1, that the deep engine is needed, by its words. */
  p_deep: number;
  /** probability that the task is security-sensitive. */
  p_security: number;
  /** the signals that counted, strongest first. */
  signals: string[];
}

/** Says what is left in one of the tenant's pools. */
export interface PoolBalance {
  /** the group of engines that the pool limits. */
  group: "fast" | "deep";
  /** what the pool counts. */
  unit: "requests" | "tokens" | "concurrent" | "tokens_day" | "key_requests" | "key_tokens" | "key_concurrent" | "key_tokens_day";
  /** the most per minute or day; of `concurrent`, the most at once. */
  limit: number;
  /** how much may still be taken. */
  remaining: number;
  /** seconds until the pool is full again. */
  reset_s: number;
}

/** Says how full the context window is. */
export interface ContextUse {
  /** tokens of prompt and output together. */
  used_tokens: number;
  /** the smallest window of the route. */
  window_tokens: number;
  /** used share of the window. */
  used_percent: number;
  /** what to expect: below 30 %, 60 %, 80 % of the window, or beyond. */
  band: "sharp" | "drift" | "compaction_likely" | "compaction_certain";
  /** the band before, where this turn led into another. */
  crossed_from?: "sharp" | "drift" | "compaction_likely" | "compaction_certain";
}

/** Says what was spent of one budget before this task. */
export interface BudgetUse {
  /** whose budget it is: the tenant's, its key's or its run's. */
  scope: "tenant" | "key" | "run";
  /** what it is of: the UTC day, the month, or the whole run. */
  window: "day" | "month" | "run";
  /** spent by tasks that have ended. */
  used_usd: number;
  /** reserved by tasks that run, this one included. */
  held_usd: number;
  /** a warning is given from here on. */
  soft_usd?: number;
  /** no task begins that could exceed it. */
  hard_usd?: number;
  /** whether the soft limit is spent. */
  over_soft?: boolean;
  /** seconds until it begins anew; a run's never does. */
  renews_s?: number;
}

/** Tells that a backend failed before its first word, and that another began again. */
export interface RoutedFailover {
  /** the backend that failed. */
  from: string;
  /** the backend that took over. */
  to: string;
  /** what was wrong with the first. */
  error: string;
}

/** Tells that a backend broke off or fell silent amid its answer, and that another went on. */
export interface RoutedContinuation {
  /** the backend that broke off. */
  from: string;
  /** the backend that went on. */
  to: string;
  /** characters of the answer that had been said. */
  at_chars: number;
  /** tokens that had been generated, reasoning included. */
  at_tokens: number;
  /** whether it ended, or was silent for too long. */
  reason: "broke" | "stalled";
  /** what was wrong, for people. */
  error: string;
}

/** Describes a sub-task of the strategy `delegate`. */
export interface RoutedDelegation {
  /** steer or cancel the sub-task by it. */
  id: string;
  /** what the deep engine was asked. */
  task: string;
  /** `running`, `finished`, `failed` or `cancelled`. */
  state: string;
}

/** Says what became of the compaction before the answer. */
export interface RoutedCompaction {
  /** how far the compaction is; docs/context.md explains each. */
  state: "running" | "done" | "failed" | "limit_reached" | "nothing_to_fold";
  /** which automatic compaction of the conversation it is, from 1. */
  number: number;
  /** the most automatic compactions of a conversation. */
  max_per_conversation: number;
  /** a longer prompt is compacted. */
  threshold_tokens: number;
  /** tokens of the prompt as it came. */
  tokens_before: number;
  /** tokens of the compacted prompt. */
  tokens_after?: number;
  /** why there is no summary. */
  error?: string;
  /** what the summary took, by backend. */
  usage?: Record<string, Usage>;
}

/** Says what a response costs. */
export interface RoutedCost {
  /** by the prices of the day that it ended on. */
  amount: number;
  /** `USD`. */
  currency: string;
}

/** Describes one generation of a strategy. */
export interface RoutedGeneration {
  /** the backend that generated. */
  backend: string;
  /** its part in the strategy; docs/strategies.md names them. */
  part: string;
  /** `finished`, `cancelled` or `failed`. */
  state: string;
  /** tokens of its prompt. */
  input_tokens: number;
  /** those of them that a KV cache held. */
  cached_tokens: number;
  /** tokens that it generated, reasoning included. */
  output_tokens: number;
  /** those of them that were reasoning. */
  reasoning_tokens: number;
}

/** Counts the variations that `breadth` made. */
export interface RoutedVariations {
  /** variations that were begun. */
  asked: number;
  /** variations that came to their end. */
  whole: number;
}

/** Tells that a client came back to the response after its connection was lost. */
export interface RoutedRejoin {
  /** how often it came back. */
  times: number;
  /** finished items of the output that it held, and was not sent again. */
  held_items: number;
  /** how long nobody listened, the last time. */
  away_ms: number;
}

/** Says how far one backend is ready after a warm-up. */
export interface RoutedWarmUp {
  /** the backend's name. */
  backend: string;
  /** how ready it is; explained under warm-ups. */
  state: "warming" | "held" | "opened" | "declined" | "limited" | "cut" | "failed";
  /** tokens of the context that its KV cache holds now. */
  held_tokens: number;
  /** those of them that it held before. */
  cached_tokens: number;
}

/** Says where a response ran and why. */
export interface Routing {
  /** where the task went. */
  route: "fast" | "deep" | "parallel";
  /** how both engines work together; null with one engine. */
  strategy: string | null;
  /** those that work on it, as failovers have left them. */
  backends: RoutedBackend[];
  /** how the task was classified. */
  class: RoutedClass;
  /** the kind of rule that put this route first. */
  reason: "model" | "hint" | "rule" | "sticky" | "class" | "evidence" | "deadline" | "explore" | "security" | "window" | "images" | "access" | "fallback";
  /** the same in one sentence, for people. */
  why: string;
  /** the policy that decided. */
  policy_version: string;
  /** what is left in the tenant's pools of this route. */
  pools: PoolBalance[];
  /** `degraded` while Redis is away and the gateway limits by itself. */
  ratelimit_mode: "redis" | "degraded";
  /** how full the context window is. */
  context: ContextUse;
  /** what is left of the task's budgets in money. */
  budgets?: BudgetUse[];
  /** the backend that held the conversation, where this is another. */
  moved_from?: string;
  /** backends that others stood in for. */
  failovers?: RoutedFailover[];
  /** answers that broke off, and that others went on with. */
  continued?: RoutedContinuation[];
  /** the sub-tasks of `delegate`; `response.in_progress` comes again when one changes. */
  delegations?: RoutedDelegation[];
  /** where `context_management` applied. */
  compaction?: RoutedCompaction;
  /** at the end: what each backend used, over all generations; this is what is charged. */
  usage?: Record<string, Usage>;
  /** at the end: of that usage; missing where a model has no price. */
  cost?: RoutedCost;
  /** at the end: of that usage, in engines alone; missing where one's power is not known. */
  energy_joules?: number;
  /** at the end: the backend whose answer this is. */
  answered_by?: string;
  /** at the end: what failed, although there is an answer. */
  errors?: string[];
  /** at the end: those of a strategy. */
  generations?: RoutedGeneration[];
  /** at the end: how many `breadth` made. */
  variations?: RoutedVariations;
  /** where the client lost its connection and came back. */
  rejoined?: RoutedRejoin;
  /** after a warm-up: how ready each backend is. */
  warm?: RoutedWarmUp[];
}

/** A response as the gateway sends it. */
export interface ResponseFields {
  /** names the response; the next one continues it by `previous_response_id`. */
  id: string;
  /** the kind of object. */
  object: "response";
  /** Unix time in seconds when it began. */
  created_at: number;
  /** whether it outlives its request. */
  background: boolean;
  /** the request's instructions. */
  instructions: string | null;
  /** the request's limit of the output. */
  max_output_tokens: number | null;
  /** the request's limit of tool calls. */
  max_tool_calls: number | null;
  /** the request's metadata, hints for the router among them. */
  metadata: Record<string, string>;
  /** whether tools may be called at once. */
  parallel_tool_calls: boolean;
  /** the response that this one continues. */
  previous_response_id: string | null;
  /** the request's name for its conversation. */
  prompt_cache_key: string | null;
  /** how the request wanted the reasoning. */
  reasoning: ReasoningEcho;
  /** the request's name for its user. */
  safety_identifier: string | null;
  /** whether the response is kept. */
  store: boolean;
  /** the request's temperature, else 1. */
  temperature: number;
  /** how the request wanted the text. */
  text: TextEcho;
  /** which tools may or must be called. */
  tool_choice: any;
  /** the request's tools. */
  tools: any[];
  /** the request's number of log probabilities; there are none. */
  top_logprobs: number;
  /** the request's share of nucleus sampling, else 1. */
  top_p: number;
  /** the request's truncation, else `disabled`. */
  truncation: string;
  /** the request's name for its user, as older clients send it. */
  user: string | null;
  /** the items that are done. */
  output: any[];
  /** the model that answers. */
  model: string;
  /** at the end the tier that was used, before that the one that was asked for. */
  service_tier: string;
  /** `queued`, `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`. */
  status: string;
  /** Unix time in seconds, once it is completed. */
  completed_at: number | null;
  /** why it failed. */
  error: ResponseError | null;
  /** why it is incomplete. */
  incomplete_details: IncompleteDetails | null;
  /** at the end: the context, and the answer with its reasoning. */
  usage: Usage | null;
  /** ours: where it ran and why, as in the table above. */
  routing?: Routing;
}
