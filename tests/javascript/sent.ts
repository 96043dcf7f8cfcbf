// What the official SDKs say is sent: what is required is there, and null only where it may be.
// Members that they do not know are allowed.
import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";
import type { ResponseItemList } from "openai/resources/responses/input-items";
import type { InputTokenCountResponse } from "openai/resources/responses/input-tokens";
import type * as Organization from "openai/resources/admin/organization/index";

type Read<T> = unknown extends T ? T : T extends object ? { readonly [K in keyof T]: Read<T[K]> } : T;
type Items<T> = { data: T[]; object: string; first_id: string | null; last_id: string | null; has_more: boolean };
// OpenAI's reference shows null in what its SDK has as optional.
type Nullable<T> = { [K in keyof T]: undefined extends T[K] ? T[K] | null : T[K] };
type Format<T> = T extends { schema: unknown } ? Nullable<T> : T;
type Text = { format: Format<OpenAI.Responses.ResponseFormatTextConfig>; verbosity: string };
// The SDK's client computes the text of the output.
type Whole = Nullable<Omit<OpenAI.Responses.Response, "output_text" | "text"> & { text: Text }>;
type Event<T> = T extends { response: OpenAI.Responses.Response } ? Omit<T, "response"> & { response: Whole } : T;
// Null where OpenAI's service sends null, too: in chunks, and for the first token of a prompt.
type Logprobs = OpenAI.CompletionChoice.Logprobs;
type Scored = Omit<Logprobs, "token_logprobs" | "top_logprobs"> & {
  token_logprobs: (number | null)[];
  top_logprobs: (Record<string, number> | null)[];
};
type Choice = Omit<OpenAI.CompletionChoice, "logprobs"> & { logprobs: Scored | null };
type Delta = OpenAI.ChatCompletionChunk.Choice.Delta & { reasoning_content?: string };
type ChunkChoice = Omit<OpenAI.ChatCompletionChunk.Choice, "delta"> & { delta: Delta };

export type Chat = Read<OpenAI.ChatCompletion>;
export type ChatEvent = Read<Omit<OpenAI.ChatCompletionChunk, "choices"> & { choices: ChunkChoice[] }>;
export type ChatPage = Read<Items<OpenAI.ChatCompletion>>;
export type ChatMessages = Read<Items<Omit<OpenAI.ChatCompletionStoreMessage, "role"> & { role: string }>>;
export type ChatDeleted = Read<OpenAI.ChatCompletionDeleted>;
export type Completion = Read<Omit<OpenAI.Completion, "choices"> & { choices: Choice[] }>;
export type CompletionEvent = Read<
  Omit<OpenAI.Completion, "choices" | "usage"> & {
    choices: (Omit<Choice, "finish_reason"> & { finish_reason: Choice["finish_reason"] | null })[];
    usage?: OpenAI.CompletionUsage | null;
  }
>;
export type Response = Read<Whole>;
export type ResponseEvent = Read<Event<OpenAI.Responses.ResponseStreamEvent>>;
export type InputItems = Read<ResponseItemList>;
export type InputTokens = Read<InputTokenCountResponse>;
export type Message = Read<Anthropic.Message> & Read<Anthropic.Beta.BetaMessage>;
export type MessageEvent = Read<Anthropic.RawMessageStreamEvent> & Read<Anthropic.Beta.BetaRawMessageStreamEvent>;
export type MessageTokens = Read<Anthropic.MessageTokensCount>;
export type MessageModel = Read<Anthropic.ModelInfo> & Read<Anthropic.Beta.BetaModelInfo>;
// Its reference has a type of errors that its SDK does not: "request_too_large".
export type MessageError = Read<Omit<Anthropic.ErrorResponse, "error"> & { error: { type: string; message: string } }>;
export type Model = Read<OpenAI.Model>;
export type File = Read<Nullable<OpenAI.FileObject>>;
export type Files = Read<Items<Nullable<OpenAI.FileObject>>>;
export type FileDeleted = Read<OpenAI.FileDeleted>;
export type Batch = Read<Nullable<OpenAI.Batch>>;
export type Batches = Read<Items<Nullable<OpenAI.Batch>>>;
export type Failure = Read<{ error: OpenAI.ErrorObject }>;
export type Key = Read<Organization.AdminAPIKey>;
export type Usage = Read<Organization.UsageCompletionsResponse>;
export type Models = Read<{ data: OpenAI.Model[]; object: string }>;
export type MessageModels = { readonly data: readonly MessageModel[] };
export type Project = Read<Organization.Project>;
