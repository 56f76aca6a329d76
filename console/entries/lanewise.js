export { connect, LanewiseError } from "../../sdk/typescript/src/index.ts";
