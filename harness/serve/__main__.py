from harness.serve.explore import main

raise SystemExit(main())
