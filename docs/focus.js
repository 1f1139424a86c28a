// The theme wraps wide tables and adds copy buttons late: let keyboards reach the first, and do not
// announce the second as a navigation of the site.
const mend = () => {
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((e) => (e.tabIndex = 0));
  document.querySelectorAll("nav.md-code__nav:not([role])").forEach((e) => e.setAttribute("role", "presentation"));
};
new MutationObserver(mend).observe(document.documentElement, { childList: true, subtree: true });
mend();
