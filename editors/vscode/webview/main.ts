/** The chat as it runs inside the web view. */

import './style.css';

document.body.dataset['ready'] = 'yes';
