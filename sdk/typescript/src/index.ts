export { connect, Client, Stream, type CreateOptions, type ConnectOptions } from "./client.js";
export { LanewiseError, Response, type Event, type Item, type Routing, type Usage } from "./turn.js";
