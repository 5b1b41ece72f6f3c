// The search of these pages runs in a worker, and browsers start none for pages read from the disk. There a hidden
// frame stands in for it: the worker's script runs inside, and messages are passed on both ways.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      const script = inside.document.createElement("script")
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside = new Promise(ready => (script.onload = () => ready(inside)))
      script.src = url
      inside.document.body.append(script)
    }

    postMessage(data) {
      this.inside.then(inside => inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
