fleet.start();
