// Where a simulated wafer's model lies: each rectangle is one layer, darker the fuller its memory is.
import { html, useSignal } from "../vendor/preact.js";
import { admin } from "../shared/api.js";
import { useLoaded } from "../shared/loaded.js";

export function Wafers() {
  const { value } = useLoaded(() => admin("GET", "placements"));
  if (!value?.length) return null;
  return value.map((placement) => html`<${Placed} key=${placement.backend} placement=${placement} />`);
}

function Placed({ placement }) {
  const pointed = useSignal(null);
  const told = pointed.value;
  return html`
    <section class="card" aria-label=${`Placement of ${placement.backend}`}>
      <p class="line">
        <strong>${placement.model}</strong>
        <span class="quiet">
          on ${placement.wafers} × ${placement.wafer}, ${placement.width} × ${placement.height} processing elements each, in${" "}
          ${placement.regions.length} regions
        </span>
      </p>
      <div class="wafers" onMouseLeave=${() => (pointed.value = null)}>
        ${Array.from({ length: placement.wafers }, (_, number) => html`<${Wafer} key=${number} placement=${placement} number=${number} pointed=${pointed} />`)}
      </div>
      <p class="quiet">
        ${told ? `${told.part} on wafer ${told.wafer + 1}: ${told.width} × ${told.height}, ${Math.round(told.fill * 100)} % of its memory` : "Point at a region."}
      </p>
    </section>
  `;
}

const Wafer = ({ placement, number, pointed }) => html`
  <svg viewBox=${`0 0 ${placement.width} ${placement.height}`} role="img" aria-label=${`Wafer ${number + 1}`}>
    ${placement.regions
      .filter((region) => region.wafer === number)
      .map(
        (region) => html`
          <rect
            x=${region.x}
            y=${region.y}
            width=${region.width}
            height=${region.height}
            fill-opacity=${region.fill ** 4}
            onMouseEnter=${() => (pointed.value = region)}
          />
        `,
      )}
  </svg>
`;
