export { connect, Client, Stream, type CreateOptions, type ConnectOptions } from "./client.js";
export { LanewiseError, Response, type Event, type Item } from "./turn.js";
export type * from "./types.js";
