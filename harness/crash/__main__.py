from harness.crash.write_storm import main

raise SystemExit(main())
