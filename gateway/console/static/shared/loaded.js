// Something the page asks the gateway for: what came, or why nothing did.
import { useEffect, useSignal } from "../vendor/preact.js";

/** `load` is an async function; asked anew when one of `inputs` changes, or by `again()`. */
export function useLoaded(load, inputs = []) {
  const state = useSignal({ value: null, error: null, isLoading: true });
  const round = useSignal(0);
  useEffect(() => {
    let isCurrent = true;
    load().then(
      (value) => isCurrent && (state.value = { value, error: null, isLoading: false }),
      (error) => isCurrent && (state.value = { value: state.peek().value, error, isLoading: false }),
    );
    return () => (isCurrent = false);
  }, [...inputs, round.value]);
  return { ...state.value, again: () => round.value++ };
}
