from harness.kernel.explore import main

raise SystemExit(main())
