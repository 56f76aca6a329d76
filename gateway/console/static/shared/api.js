// Asks the gateway over HTTP; what goes wrong is an ApiError with words for people.
import { adminKey, site, tenantKey } from "./site.js";
import { wantsKey } from "./key_dialog.js";

const TIMEOUT_MS = 15_000;

export class ApiError extends Error {
  constructor(message, status, param, code) {
    super(message);
    this.status = status; // 0: nobody answered
    this.param = param;
    this.code = code;
  }
}

/** The words for an answer that is none of the gateway's. */
export const notOurs = (status) =>
  `Something before the gateway answered ${status}, as a proxy does. See whether it reaches the gateway.`;

async function ask(method, path, key, body, type, timeoutMs = TIMEOUT_MS) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      body,
      headers: { authorization: `Bearer ${key}`, ...(body === undefined ? {} : { "content-type": type }) },
      signal: AbortSignal.timeout(timeoutMs),
    });
  } catch {
    throw new ApiError("The gateway does not answer. It may be restarting; try again.", 0);
  }
  const text = await answer.text();
  if (answer.ok) return text;
  let error = {};
  try {
    error = JSON.parse(text).error ?? {};
  } catch {
    // Not one of ours: a proxy's page, perhaps. The status has to do.
  }
  throw new ApiError(error.message ?? notOurs(answer.status), answer.status, error.param, error.code);
}

/** JSON in and out of `/admin/...`, with the admin key. */
export async function admin(method, path, body, timeoutMs) {
  try {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    const text = await ask(method, `/admin/${path}`, adminKey.value, sent, "application/json", timeoutMs);
    return parsed(text || "null");
  } catch (error) {
    if (error.status === 401) wantsKey.value = "admin";
    throw error;
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError(notOurs("with what is no JSON"), 200);
  }
}

/** Text in and out of `/v1/...`, with the tenant's key. */
export async function tenant(method, path, body, type = "application/json") {
  try {
    return await ask(method, `${site.value.api}/${path}`, tenantKey.value, body, type);
  } catch (error) {
    if (error.status === 401) wantsKey.value = "tenant";
    throw error;
  }
}
