// Before the first paint: the colours and the side bar as they were chosen.

for (const [name, fallback] of [["theme", "auto"], ["sidebar", true]]) {
  let kept = null;
  try {
    kept = JSON.parse(localStorage.getItem(`vinoqueue.${name}`));
  } catch {
    // Private windows may refuse to keep anything.
  }
  document.documentElement.dataset[name] = kept ?? fallback;
}
